/** Does something every so often while the page is looked at. Call it while a component is made. */
export function whileVisible(everyMs: number, act: () => void): void {
  $effect(() => {
    const timer = setInterval(() => {
      if (!document.hidden) act();
    }, everyMs);
    return () => clearInterval(timer);
  });
}
