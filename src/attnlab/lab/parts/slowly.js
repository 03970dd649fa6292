// Calls a function when nothing has been asked of it for a while: a browser takes few new addresses a second.
export function slowly(act) {
  let timer = 0;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(act, 250);
  };
}
