(component
  (type (component (type (instance (export "a" (type (sub resource))))) (export "b" (instance (type 0)))))
  (component $a (component $b (component $c (core module (table 1 funcref) (global i32 (i32.const 1)) (data "x") (elem func)))))
  (instance (instantiate $a)))
