// A field for an input that the kernel's model answers.

import { count } from "../../report/elements.js";

// chooser: of chooser.js; prompt: what can be typed; drawResult(result, isOther) draws an answer, and hears whether its
// input is another one than before.
export function makeAsking(chooser, prompt, change, drawResult) {
  let shown = null; // the input whose answer is drawn
  chooser.askBy((input) => change({ input }));
  return {
    take({ input, edits }, result) {
      const isRecorded = chooser.show(input);
      if (!result) return chooser.say("The model answers …");
      drawResult(result, input !== shown);
      shown = input;
      const problem = result.refused ?? result.error;
      if (problem) chooser.say(problem, true);
      else if (edits.length) chooser.say(`The answer of the model with ${count(edits.length, "edit")}.`);
      else if (!isRecorded) chooser.say(input ? "The model’s answer." : `Type ${prompt}.`);
      return undefined;
    },
  };
}
