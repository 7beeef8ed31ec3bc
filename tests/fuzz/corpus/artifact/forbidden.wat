(component
  (import "innkeeper:plugin/types@0.1.0" (instance $types))
  (import "wasi:sockets/tcp@0.2.6" (instance))
  (import "a:b/c" (instance))
  (export "innkeeper:plugin/reconciler@0.1.0" (instance $types)))
