// The page that `attnlab lab` serves: the runs in its folder, and PyTorch behind those that are finished.

import { openPage } from "./app.js";
import { joinEngines } from "./parts/server.js";
import { makeRuns } from "./rooms/runs.js";

openPage({ more: { runs: makeRuns }, join: joinEngines });
