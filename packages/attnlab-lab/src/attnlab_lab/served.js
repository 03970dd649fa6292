// The page that `attnlab lab` serves: the runs in its folder, and PyTorch behind those that are finished.

import { openPage } from "./app.js";
import { joinEngines } from "./parts/server.js";
import { makeCourse } from "./rooms/course.js";
import { makeModels } from "./rooms/models.js";
import { makePopulations } from "./rooms/populations.js";
import { makePrograms } from "./rooms/programs.js";
import { makeRuns } from "./rooms/runs.js";
import { makeSweeps } from "./rooms/sweeps.js";

const more = { runs: makeRuns, populations: makePopulations, sweeps: makeSweeps, models: makeModels, programs: makePrograms, course: makeCourse };
openPage({ more, join: joinEngines });
