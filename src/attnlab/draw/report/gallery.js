// The gallery only needs a script for its colors; its filter is a CSS rule.

mountTheme();
