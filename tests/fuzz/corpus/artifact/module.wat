(module (import "a" "b" (func)) (memory 1) (data (i32.const 0) "x") (func (local i32 i64) unreachable))
