// The gallery needs no script but for its colours; the filter of its table is a rule of the style.

mountTheme();
