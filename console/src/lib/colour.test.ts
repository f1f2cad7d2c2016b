import { describe, expect, it } from 'vitest';
import { CONTRAST_MIN, accentIn, contrast, hexColour, mix } from './colour';

describe('colours', () => {
  it('are read in the two forms that people write', () => {
    expect(hexColour(' #0C5a61 ')).toBe('#0c5a61');
    expect(hexColour('#abc')).toBe('#aabbcc');
    for (const odd of ['abc', '#abcd', '#ggg', 'red', '', null, 7, {}]) expect(hexColour(odd)).toBeNull();
  });

  it('have the contrasts that the guidelines give', () => {
    expect(contrast('#000000', '#ffffff')).toBeCloseTo(21);
    expect(contrast('#777777', '#ffffff')).toBeCloseTo(4.48, 2);
    expect(contrast('#123456', '#123456')).toBe(1);
  });

  it('mix', () => {
    expect(mix('#000000', '#ffffff', 0.5)).toBe('#808080');
    expect(mix('#102030', '#ffffff', 0)).toBe('#102030');
  });
});

describe('an accent', () => {
  const colours = ['#ffe600', '#ff7a00', '#e30613', '#0c5a61', '#003366', '#ffffff', '#000000', '#7f7f7f', '#00ff88'];
  const grounds = { light: ['#f3f2ec', '#fbfaf7', '#ffffff'], dark: ['#0e1518', '#151e22', '#1c272c'] };

  it.each(colours)('can be read in both looks, whatever it is: %s', (colour) => {
    for (const look of ['light', 'dark'] as const) {
      const { accent, strong, soft, on } = accentIn(look, colour);
      for (const ground of grounds[look])
        expect(contrast(accent, ground), `${look} ${ground}`).toBeGreaterThanOrEqual(CONTRAST_MIN);
      expect(contrast(on, accent), `${look} on`).toBeGreaterThanOrEqual(CONTRAST_MIN);
      expect(contrast(strong, soft), `${look} strong`).toBeGreaterThanOrEqual(CONTRAST_MIN);
      // What is chosen is seen by its ground.
      expect(contrast(soft, grounds[look][1] ?? ''), `${look} soft`).toBeGreaterThan(1.1);
    }
  });

  it('stays as it is where it can be read, and else says that it gave way', () => {
    expect(accentIn('light', '#0c5a61')).toMatchObject({ accent: '#0c5a61', isAdjusted: false });
    expect(accentIn('dark', '#0c5a61').isAdjusted).toBe(true);
    expect(accentIn('light', '#ffe600').isAdjusted).toBe(true);
    expect(accentIn('dark', '#ffe600')).toMatchObject({ accent: '#ffe600', isAdjusted: false });
  });
});
