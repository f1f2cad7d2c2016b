/** The time, ten seconds old at most: for what says how long ago something was. */
class Clock {
  now = $state(Date.now());

  constructor() {
    setInterval(() => {
      if (!document.hidden) this.now = Date.now();
    }, 10_000);
  }
}

export const time = new Clock();
