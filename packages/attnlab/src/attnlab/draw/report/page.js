// The page of a report.

import { mountSections } from "./sections.js";
import { foldTables } from "./tables.js";
import { mountTheme } from "./theme.js";

foldTables();
mountTheme();
mountSections();
