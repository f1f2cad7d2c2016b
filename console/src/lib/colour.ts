/** Colours of an organization: whether text on them and in them can be read, and the nearest that can. */

/** Red, green and blue, 0 to 1. */
type Rgb = readonly [number, number, number];

/** What text has of contrast at least (WCAG, AA). */
export const CONTRAST_MIN = 4.5;

/** The grounds of `tokens.css` on which the accent stands as text, by day and by night: paper, surface, raised, sunken. */
const GROUNDS = {
  light: ['#f3f2ec', '#fbfaf7', '#ffffff', '#eae8e0'],
  dark: ['#0e1518', '#151e22', '#1c272c', '#0a1012'],
} as const;
const SURFACE = { light: '#fbfaf7', dark: '#151e22' } as const;
const INK = { light: '#ffffff', dark: '#06191b' } as const;
/** How much of the accent is in the ground of what is chosen. */
const SOFT_SHARE = { light: 0.12, dark: 0.22 } as const;
/** Between a colour and the next that is tried. */
const STEP = 0.02;

export type Look = 'light' | 'dark';

/** What a look makes of an accent. */
export interface Accent {
  accent: string;
  strong: string;
  soft: string;
  /** What is written on the accent. */
  on: string;
  /** Whether the colour had to give way so that it can be read. */
  isAdjusted: boolean;
}

/** `#rgb` and `#rrggbb`, in any case, as `#rrggbb`; nothing else is a colour here. */
export function hexColour(text: unknown): string | null {
  if (typeof text !== 'string') return null;
  const short = /^#([\da-f])([\da-f])([\da-f])$/i.exec(text.trim());
  if (short)
    return `#${short
      .slice(1)
      .map((digit) => digit + digit)
      .join('')}`.toLowerCase();
  return /^#[\da-f]{6}$/i.test(text.trim()) ? text.trim().toLowerCase() : null;
}

/** The contrast of two colours, 1 to 21. */
export function contrast(one: string, other: string): number {
  const [brighter = 0, darker = 0] = [luminance(rgb(one)), luminance(rgb(other))].sort((a, b) => b - a);
  return (brighter + 0.05) / (darker + 0.05);
}

/** The accent of an organization in a look: the colour itself where it can be read, else the nearest shade of it that can. */
export function accentIn(look: Look, colour: string): Accent {
  const towards = look === 'light' ? '#000000' : '#ffffff';
  const grounds: readonly string[] = GROUNDS[look];
  const accent = shade(colour, towards, (shown) => grounds.every((ground) => contrast(shown, ground) >= CONTRAST_MIN));
  // Of the colour that can be read: white would leave no ground to be seen by day.
  const soft = mix(SURFACE[look], accent, SOFT_SHARE[look]);
  const strong = shade(mix(accent, towards, 0.25), towards, (shown) => contrast(shown, soft) >= CONTRAST_MIN);
  const on = [INK.light, INK.dark].sort((a, b) => contrast(b, accent) - contrast(a, accent))[0] ?? INK[look];
  return { accent, strong, soft, on, isAdjusted: accent !== colour };
}

/** The first colour, on the way from one to another, that is good enough. */
function shade(from: string, to: string, isGood: (colour: string) => boolean): string {
  for (let share = 0; share < 1; share += STEP) {
    const colour = share === 0 ? from : mix(from, to, share);
    if (isGood(colour)) return colour;
  }
  return to;
}

/** So much of the other colour in the one. */
export function mix(one: string, other: string, share: number): string {
  const [a, b] = [rgb(one), rgb(other)];
  const mixed = a.map((value, index) => value + ((b[index] ?? 0) - value) * share);
  return `#${mixed
    .map((value) =>
      Math.round(value * 255)
        .toString(16)
        .padStart(2, '0'),
    )
    .join('')}`;
}

function rgb(hex: string): Rgb {
  const value = Number.parseInt(hex.slice(1), 16);
  return [(value >> 16) / 255, ((value >> 8) & 255) / 255, (value & 255) / 255];
}

function luminance(colour: Rgb): number {
  const [red = 0, green = 0, blue = 0] = colour.map((value) =>
    value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4,
  );
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}
