/** Looks now, every so often while the page is looked at, and whenever somebody comes back to it, until the function that it gives is called. */
export function lookNowAndThen(everyMs: number, act: () => void): () => void {
  const look = (): void => {
    if (!document.hidden) act();
  };
  look();
  const timer = setInterval(look, everyMs);
  document.addEventListener('visibilitychange', look);
  return () => {
    clearInterval(timer);
    document.removeEventListener('visibilitychange', look);
  };
}

/** Does something every so often while the page is looked at. Call it while a component is made. */
export function whileVisible(everyMs: number, act: () => void): void {
  $effect(() => {
    const timer = setInterval(() => {
      if (!document.hidden) act();
    }, everyMs);
    return () => clearInterval(timer);
  });
}
