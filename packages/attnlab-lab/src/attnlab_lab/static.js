// The page that needs no server.

import { openPage } from "./app.js";

openPage();
