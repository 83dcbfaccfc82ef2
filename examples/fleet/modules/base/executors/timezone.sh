#!/bin/sh
# Keeps /etc/timezone. Reads {"name", "state", "params": {"zone"}, "dryRun"} and answers
# {"changed", "error"}.
input=$(cat)
zone=$(printf '%s' "$input" | tr -d '\n' | sed -n 's/.*"zone" *: *"\([^"]*\)".*/\1/p')
file="${MUSTER_ROOT:-}/etc/timezone"

answer() {
    printf '{"changed": %s, "error": "%s"}\n' "$1" "$2"
    exit 0
}

case $zone in
    '' | *[!A-Za-z0-9/_+-]*) answer false 'params.zone names no time zone' ;;
esac
if [ -f "$file" ] && [ "$(cat "$file")" = "$zone" ]; then
    answer false ''
fi
if printf '%s' "$input" | tr -d '\n' | grep -q '"dryRun" *: *true'; then
    answer true ''
fi
if printf '%s\n' "$zone" > "$file.new" && mv "$file.new" "$file"; then
    answer true ''
fi
answer false 'the time zone could not be written'
