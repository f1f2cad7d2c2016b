/** So long work goes on before the page may paint and listen. */
const TURN_MS = 12;

/** Long work in turns: it asks after each piece whether its turn is over, and then lets others have theirs. */
export class Turns {
  #since = performance.now();

  get isOver(): boolean {
    return performance.now() - this.#since >= TURN_MS;
  }

  async next(): Promise<void> {
    await new Promise((resolve) => setTimeout(resolve));
    this.#since = performance.now();
  }
}
