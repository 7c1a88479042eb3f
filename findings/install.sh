# Sourced by the scripts here: a temporary folder, packages in it, and the comparison at the end.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export PYTHONDONTWRITEBYTECODE=1

# install PACKAGE…: by pip, without what they depend on, into $work/site, which Python then finds.
install() {
    python3 -m pip install -q --no-deps --disable-pip-version-check --root-user-action=ignore --target "$work/site" "$@" >&2 || exit 2
    export PYTHONPATH="$work/site"
}

# same TEXT: standard input is that text, or something has changed.
same() {
    local seen
    seen=$(cat)
    printf '%s\n' "$seen"
    [ "$seen" = "$1" ] || { printf 'CHANGED; it was:\n%s\n' "$1"; exit 1; }
}
