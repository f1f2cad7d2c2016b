/** What runs within the page: it notes tasks and drawings, and tells when a picture stood. Nothing here may use what is outside of its function. */

/** What a step is waited for. */
export interface Awaited {
  /** The address of the question whose answer counts, as a pattern. */
  answer: string;
  /** An element that shows it, and what it says. */
  selector: string;
  text: string;
  /** Whether a canvas must have been drawn since the answer. */
  isDrawn: boolean;
  /** So many of the elements; those in view make the picture. */
  count: number;
}

export interface Timing {
  /** Milliseconds from the answer until the picture was painted. */
  picture: number;
  /** And until all of it was there, also what is not in view. */
  whole: number;
}

interface Notes {
  tasks: number[];
  drawnAt: number;
}

/** Runs before the page does. */
export function takeNotes(): void {
  const notes: Notes = { tasks: [], drawnAt: 0 };
  Object.assign(window, { notes });
  new PerformanceObserver((list) => notes.tasks.push(...list.getEntries().map(({ duration }) => duration))).observe({
    type: 'longtask',
  });
  const { prototype } = CanvasRenderingContext2D;
  const stroke = prototype.stroke as (this: CanvasRenderingContext2D, path?: Path2D) => void;
  prototype.stroke = function (this: CanvasRenderingContext2D, path?: Path2D): void {
    notes.drawnAt = performance.now();
    if (path) stroke.call(this, path);
    else stroke.call(this);
  };
}

/** Forgets what was noted before. */
export function begin(): void {
  (window as unknown as { notes: Notes }).notes.tasks.length = 0;
  performance.clearResourceTimings();
}

/** The longest task since then; 0 where none was over 50 ms. */
export function longestTask(): number {
  return Math.max(0, ...(window as unknown as { notes: Notes }).notes.tasks);
}

/** Waits for a picture, frame by frame. */
export function picture({ answer, selector, text, isDrawn, count }: Awaited): Promise<Timing> {
  const { notes } = window as unknown as { notes: Notes };
  const pattern = new RegExp(answer);
  const seen = new Map<Element, number>();
  const afterPaint = (then: (at: number) => void): void => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => then(performance.now());
    port2.postMessage(null);
  };
  // What is around an element may hide what goes beyond it, as the frame of a canvas does.
  const isInView = (element: Element): boolean => {
    const { left, top, right, bottom } = element.getBoundingClientRect();
    const { clientWidth, clientHeight } = document.documentElement;
    const frames = [new DOMRect(0, 0, clientWidth, clientHeight)];
    for (let around = element.parentElement; around; around = around.parentElement)
      if (getComputedStyle(around).overflow !== 'visible') frames.push(around.getBoundingClientRect());
    return frames.every(
      (frame) => right > frame.left && bottom > frame.top && left < frame.right && top < frame.bottom,
    );
  };
  return new Promise((resolve) => {
    const look = (): void => {
      const answered = performance
        .getEntriesByType('resource')
        .filter(({ name }) => pattern.test(name))
        .map((entry) => (entry as PerformanceResourceTiming).responseEnd)
        .at(-1);
      if (answered === undefined || (isDrawn && notes.drawnAt < answered)) return void requestAnimationFrame(look);
      const fresh = [...document.querySelectorAll<HTMLElement>(selector)].filter(
        (element) => !seen.has(element) && element.style.visibility !== 'hidden' && element.textContent.includes(text),
      );
      // A frame is painted right after this.
      afterPaint((at) => {
        for (const element of fresh) seen.set(element, at);
        if (seen.size < count) return void requestAnimationFrame(look);
        const inView = [...seen].filter(([element]) => isInView(element)).map(([, painted]) => painted);
        resolve({ picture: Math.max(...inView) - answered, whole: at - answered });
      });
    };
    requestAnimationFrame(look);
  });
}
