(component
  (@custom "innkeeper:description" "{}")
  (@custom "innkeeper:description" "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[")
  (@custom "component-name" "\00\04\03abc")
  (component (@custom "innkeeper:description" "inner")))
