import { type Span, pinched } from '../../lib/series';

/** What two fingers do to a range of time. */
export interface Grip {
  /** The range that they take hold of; null where there is nothing to zoom. */
  span: () => Span | null;
  /** Shows the range that they come to. */
  show: (span: Span) => void;
  /** They have let go of it. */
  done: (span: Span) => void;
}

/** Has two fingers within `box` zoom and move what is drawn in its part `selector`. One finger scrolls the page, as everywhere. */
export function fingers(box: HTMLElement, selector: string, grip: Grip): () => void {
  let held: { span: Span; places: readonly [number, number] } | null = null;
  let now: Span | null = null;

  /** Where the two fingers are, as parts of the width. */
  function placesOf({ touches }: TouchEvent): readonly [number, number] | null {
    const area = box.querySelector(selector)?.getBoundingClientRect();
    const [one, other] = [...touches].filter(({ target }) => box.contains(target as Node));
    if (!area || !one || !other || touches.length !== 2) return null;
    return [(one.clientX - area.left) / area.width, (other.clientX - area.left) / area.width];
  }

  function start(event: TouchEvent): void {
    const [span, places] = [grip.span(), placesOf(event)];
    if (!span || !places) return;
    if (event.cancelable) event.preventDefault();
    held = { span, places };
  }

  function move(event: TouchEvent): void {
    const places = held && placesOf(event);
    if (!held || !places) return;
    if (event.cancelable) event.preventDefault();
    now = pinched(held.span, held.places, places);
    grip.show(now);
  }

  function end(): void {
    if (now) grip.done(now);
    held = now = null;
  }

  // What a passive listener hears cannot be kept from the browser, which would zoom the page.
  box.addEventListener('touchstart', start, { passive: false });
  box.addEventListener('touchmove', move, { passive: false });
  box.addEventListener('touchend', end);
  box.addEventListener('touchcancel', end);
  return () => {
    box.removeEventListener('touchstart', start);
    box.removeEventListener('touchmove', move);
    box.removeEventListener('touchend', end);
    box.removeEventListener('touchcancel', end);
  };
}
