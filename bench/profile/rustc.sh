#!/bin/sh
# Runs the compiler that cargo names. For release builds it adds the profile of calls, from which the compiler knows what code
# runs often. With TOOLGATE_PROFILE set to a folder, the program counts instead, and writes what it counted into that folder:
# that is how `cargo xtask profile` makes the profile.
profile=${0%/*}/calls.profdata
compiler=$1
shift
case " $* " in
*instrument-coverage* | *profile-generate* | *profile-use*)
    # The compiler refuses two of these at once.
    ;;
*" opt-level=3 "*)
    if [ -n "${TOOLGATE_PROFILE-}" ]; then
        set -- "$@" "-Cprofile-generate=$TOOLGATE_PROFILE"
    elif [ -r "$profile" ]; then
        # Functions that have changed since the profile was made are compiled without it. That is not worth a warning.
        set -- "$@" "-Cprofile-use=$profile" -Cllvm-args=-no-pgo-warn-mismatch
    fi
    ;;
esac
exec "$compiler" "$@"
