#!/bin/sh
# Makes codemirror.js and its LICENSE anew from npm packages: the same bytes for the same versions.
# For newer ones change the versions, run this file (it needs node and the network), and run the lab's tests.
set -eu
packages="@codemirror/autocomplete@6.20.4 @codemirror/commands@6.11.1 @codemirror/lang-python@6.2.1
@codemirror/language@6.13.1 @codemirror/state@6.7.6 @codemirror/view@6.43.15 @lezer/common@1.5.5
@lezer/highlight@1.2.5 @lezer/lr@1.4.12 @lezer/python@1.1.19 @marijn/find-cluster-break@1.0.4 crelt@1.0.7
@codemirror/streamparser@6.0.0 style-mod@4.1.5 w3c-keyname@2.2.8"

here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
npm install --silent --no-audit --no-fund $packages esbuild@0.28.2
cat > entry.js <<'END'
export { Decoration, EditorView, highlightSpecialChars, keymap, lineNumbers } from "@codemirror/view";
export { EditorState, StateEffect, StateField } from "@codemirror/state";
export { defaultKeymap, history, historyKeymap, indentLess, indentMore } from "@codemirror/commands";
export { HighlightStyle, bracketMatching, indentOnInput, indentUnit, syntaxHighlighting } from "@codemirror/language";
export { pythonLanguage } from "@codemirror/lang-python";
export { tags } from "@lezer/highlight";
END
banner="// CodeMirror 6 (MIT, see LICENSE), bundled by build.sh: $(echo $packages)"
npx esbuild entry.js --bundle --minify --format=esm --target=es2022 --charset=utf8 --banner:js="$banner" \
  --outfile="$here/codemirror.js" --log-level=error
{
  for package in $packages; do
    echo "$package: $(grep -h '^Copyright' "node_modules/${package%@*}/LICENSE")"
  done
  echo
  sed '1,/^Copyright/d; 1{/^$/d}' node_modules/@codemirror/view/LICENSE | sed '1{/^$/d}'
} > "$here/LICENSE"
