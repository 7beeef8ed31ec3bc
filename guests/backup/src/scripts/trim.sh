for name in $SECRETS; do
  case $name in
  /*) continue ;;
  esac
  eval "value=\${$name-}"
  value=`printf '%s' "$value"`
  eval "$name=\$value"
  export "$name"
done
