// The gallery only needs a script for its colors; its filter is a CSS rule.

import { mountTheme } from "./theme.js";

mountTheme();
