# Copies the files of WordPress from the image. The entrypoint of the official images would do so too, but
# it fails at its first start as an unprivileged user, and takes a copy that was cut off for a whole one.
set -eu
from=/usr/src/wordpress
to=/var/www/html
[ -d "$from" ] || exit 0
cd "$from"

# The core belongs to the image: a copy over the old one also completes files that were cut off.
for entry in .[!.]* *; do
  if [ -e "$entry" ] && [ "$entry" != wp-content ]; then
    cp -R "$entry" "$to/"
  fi
done

# Themes, plugins and uploads belong to the site: what is there stays, and what is missing comes as a
# whole by a rename. WordPress skips names that begin with a dot.
for entry in wp-content/* wp-content/*/*; do
  name=${entry##*/}
  new="$to/${entry%/*}/.innkeeper-$name.${HOSTNAME:-0}"
  rm -rf "$new"
  if [ ! -e "$entry" ] || [ -e "$to/$entry" ]; then
    continue
  fi
  case $entry in
    wp-content/*/*) ;;
    *) if [ -d "$entry" ]; then mkdir -p "$to/$entry"; continue; fi ;;
  esac
  mkdir -p "$to/${entry%/*}"
  cp -R "$entry" "$new"
  # Another Pod on the same claim may have been faster.
  mv -T "$new" "$to/$entry" || [ -e "$to/$entry" ]
  rm -rf "$new"
done
