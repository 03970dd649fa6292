// Calls a function when nothing has been asked of it for a while: a browser takes few new addresses a second.
export function slowly(act, milliseconds = 250) {
  let timer = 0;
  const forget = () => clearTimeout(timer);
  const later = () => {
    forget();
    timer = setTimeout(act, milliseconds);
  };
  return Object.assign(later, { forget });
}
