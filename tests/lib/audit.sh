# What the tests of the auditor share.

audit() {
    "$traceless" audit "$@"
}

# Checks an expression of Python over `told`, the JSON in the file `out`.
told() {
    check "$1" python3 -c "import json; told = json.load(open('out')); assert $1, told"
}
