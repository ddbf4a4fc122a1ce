#!/bin/sh
# Puts the bot's image together: assemble.sh SOURCE WHEELS IMAGE
#
# IMAGE becomes a root folder with Python, the bot, the parts of the wheels that it needs, the few
# programs for commands in a workspace, and only those libraries of the system that all these load.
# $COMMIT is the commit of the source. Everything that could differ between two builds is fixed:
# times are $SOURCE_DATE_EPOCH; bytecode is unchecked, names no path of the build and is written in
# one order.
set -eu

source=$(realpath "$1") wheels=$(realpath "$2") image=$(realpath "$3")
user=10001
python=$(python3 -c 'import sys; print("python%d.%d" % sys.version_info[:2])')
prefix=$(python3 -c 'import sys; print(sys.base_prefix)')
library=$image/usr/local/lib/$python
export PYTHONHASHSEED=0 # fixes the order in which Python and pip write
builder=$(mktemp -d)
trap 'rm -rf "$builder"' EXIT

copy_python() {
    mkdir -p "$image/usr/local/bin" "$image/usr/local/lib"
    cp -L "$prefix/bin/$python" "$image/usr/local/bin/python3"
    cp -RL "$prefix/lib/$python" "$library"
    rm -rf "$library/site-packages" "$library"/config-* "$library"/lib-dynload/_tkinter.* \
        "$library/ensurepip" "$library/idlelib" "$library/lib2to3" "$library/test" \
        "$library/tkinter" "$library/turtledemo"
    # `site-packages`, or `dist-packages` in Debian's own Python
    packages=$("$image/usr/local/bin/python3" -I -c 'import site; print(site.getsitepackages()[-1])')
}

install_bot() {
    printf '%s\n' "$COMMIT" > "$source/bot/COMMIT"
    pip() { python3 -m pip "$@" --quiet --no-index --find-links "$wheels"; }
    pip install --target "$builder" hatchling
    PYTHONPATH=$builder pip wheel --no-deps --no-build-isolation --wheel-dir "$builder" "$source"
    pip install --no-compile --target "$packages" --find-links "$builder" \
        'signal-tee-bot[duckduckgo,mcp]'
    rm -r "$packages/bin"
    cat > "$image/usr/local/bin/signal-tee-bot" <<'PYTHON'
#!/usr/local/bin/python3 -I
import sys

from bot.cli.main import main

sys.exit(main())
PYTHON
    chmod 755 "$image/usr/local/bin/signal-tee-bot"
}

# Programs for shell commands; none of them has more rights than its user.
copy_programs() {
    mkdir -p "$image/usr/bin"
    ln -s usr/bin "$image/bin"
    dpkg --listfiles coreutils dash diffutils findutils grep gzip mawk sed tar |
        grep -E '^(/usr)?/bin/[^/]+$' | sort -u | while read -r program; do
            cp -L "$program" "$image/usr/bin/"
        done
    ln -sf dash "$image/usr/bin/sh"
    ln -s mawk "$image/usr/bin/awk"
}

compile_bytecode() {
    find "$library" -name __pycache__ -prune -exec rm -r {} +
    python3 -m compileall -q --invalidation-mode unchecked-hash -s "$image" "$library"
}

copy_system() {
    "$source/deploy/container/copy-libraries.sh" "$image"
    mkdir -p "$image/etc/ssl/certs"
    cp -L /etc/ssl/certs/ca-certificates.crt "$image/etc/ssl/certs/"
    cp -L /etc/ld.so.cache "$image/etc/"
    printf 'hosts: files dns\n' > "$image/etc/nsswitch.conf"
    printf 'root:x:0:\nsignal-tee-bot:x:%s:\n' "$user" > "$image/etc/group"
    printf '%s:x:%s:%s::%s:/\n' root 0 0 / signal-tee-bot "$user" "$user" / > "$image/etc/passwd"
}

try_to_load() {
    chroot "$image" /usr/local/bin/python3 -I -c 'import bot.app'
    for program in "$image"/usr/bin/*; do
        chroot "$image" "/usr/bin/${program##*/}" --version > /dev/null 2>&1 < /dev/null || test $? -ne 127
    done
}

set_rights_and_times() {
    chmod -R u=rwX,go=rX "$image"
    # A program that its user cannot read starts closed to that user's other processes, so none sees
    # the environment of a starting health check (see bot/observability/hardening.py).
    chmod 711 "$image/usr/local/bin/python3"
    install -d -m 1777 "$image/tmp"
    install -d -m 700 -o "$user" -g "$user" "$image/var/lib/signal-tee-bot"
    find "$image" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
}

copy_python
install_bot
copy_programs
compile_bytecode
copy_system
try_to_load
set_rights_and_times
