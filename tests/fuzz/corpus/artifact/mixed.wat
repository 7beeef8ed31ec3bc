(component
  (import "innkeeper:plugin/types@0.1.0" (instance $types))
  (import "innkeeper:plugin/host@9.9.9" (instance))
  (import "innkeeper:plugin/" (instance))
  (export "innkeeper:plugin/reconciler@0.1.0" (instance $types)))
