#!/bin/bash
# The gate test's agent: what one honest ticket does, then four things that must fail.
#
# It runs inside a run container as any agent does and needs bash, curl and git, nothing else. It holds no credential:
# the board's and the upstream's are set by the gate. `settings` beside this file names the repository.
set -u

here=$(dirname "$0")
# shellcheck source=/dev/null
. "$here/settings"
: "${REPOSITORY:?settings must name it}"
api=${PAPERCLIP_API_URL:?}/api
ticket=${PAPERCLIP_TASK_ID:?}
run=${PAPERCLIP_RUN_ID:?}
branch=agent/gate-test-$run
breaches=0
report=""

# A JSON string of the argument. Control characters other than newline and tab are dropped.
json() {
    local text=$1
    text=${text//\\/\\\\}
    text=${text//\"/\\\"}
    text=${text//$'\n'/\\n}
    text=${text//$'\t'/\\t}
    text=${text//[[:cntrl:]]/}
    printf '"%s"' "$text"
}

# board METHOD PATH BODY: one call of the board's interface.
board() {
    curl --silent --show-error --fail-with-body --max-time 30 --request "$1" "$api$2" \
        --header "Authorization: Bearer ${PAPERCLIP_API_KEY-}" \
        --header "X-Paperclip-Run-Id: $run" \
        --header 'Content-Type: application/json' --data "$3"
}

say() { printf 'gate test: %s\n' "$*"; }

comment() {
    board POST "/issues/$ticket/comments" "{\"body\":$(json "$1")}" >/dev/null \
        || say "the comment could not be written"
}

finish() { # STATUS COMMENT
    board PATCH "/issues/$ticket" "{\"status\":\"$1\",\"comment\":$(json "$2")}" >/dev/null
}

give_up() {
    say "$1"
    finish blocked "The gate test could not be carried out: $1. An operator has to look at this run's log and timeline."
    exit 1
}

# must_work WHAT COMMAND…: what the policy allows.
must_work() {
    local what=$1 output
    shift
    if ! output=$("$@" 2>&1); then
        give_up "$what failed: $output"
    fi
    say "$what: ok"
}

# must_fail WHAT COMMAND…: what nobody may; a success is a breach.
must_fail() {
    local what=$1 output
    shift
    if output=$("$@" 2>&1); then
        breaches=$((breaches + 1))
        say "BREACH: $what succeeded"
        report+="- BREACH: $what SUCCEEDED"$'\n'
    else
        # The gate names itself; what never reached it ends with the system's own word.
        output=$(grep -i portcullis <<<"$output" || tail -n 2 <<<"$output")
        # Not bash's own substitution, which takes seconds for some thousand characters.
        output=$(tr -s '[:space:]' ' ' <<<"$output" | head -c 600)
        say "$what: refused, as it must be: $output"
        report+="- $what: refused: $output"$'\n'
    fi
}

unlisted_host() { curl --silent --show-error --fail-with-body --max-time 20 https://unlisted.example.com/; }
push_to_main() { git -C web push origin HEAD:refs/heads/main; }
direct_tcp() { timeout 10 bash -c 'exec 3<>/dev/tcp/192.0.2.1/443'; }
outside_resolver() {
    # One question for example.com, type A, straight to a resolver outside.
    timeout 10 bash -c 'exec 3<>/dev/udp/192.0.2.53/53 &&
        printf "\022\064\001\000\000\001\000\000\000\000\000\000\007example\003com\000\000\001\000\001" >&3'
}

name=$(uname -n)
say "this is $name"
printf 'Written by the gate test on %s in run %s\n' "$name" "$run" >gate-test.txt || give_up "the workspace is not writable"
comment "Hostname: $name
$(cat gate-test.txt)
$(id)"

export GIT_TERMINAL_PROMPT=0
must_work "clone $REPOSITORY" git clone --quiet "$REPOSITORY" web
must_work "new branch $branch" git -C web switch --quiet --create "$branch"
cp gate-test.txt web/gate-test.txt
must_work "stage" git -C web add gate-test.txt
must_work "commit" git -C web -c user.name='Gate test' -c user.email=gate-test@portcullis.invalid \
    commit --quiet --message "Gate test of run $run"
must_work "push to $branch" git -C web push --quiet origin "HEAD:refs/heads/$branch"
head=$(git -C web rev-parse HEAD)

must_fail "an unlisted host" unlisted_host
must_fail "a push to main" push_to_main
must_fail "a direct TCP connection" direct_tcp
must_fail "a DNS lookup at an outside resolver" outside_resolver

if ((breaches > 0)); then
    finish blocked "THE GATE DOES NOT HOLD: $breaches of 4 forbidden things succeeded. An operator must stop this host's agents now.
$report"
    exit 1
fi
finish "done" "Pushed $head to $branch. All four forbidden things failed:
$report" || exit 1
say "finished"
