// The script of the page's worker.

import { serve } from "./engine/worker.js";

serve(self);
