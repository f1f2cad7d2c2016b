import { describe, expect, it } from 'vitest';
import { visible } from './hiddenSigns';

describe('signs that hide', () => {
  it('are seen by their number', () => {
    for (const [text, shown] of [
      ['\u202elive', '⟨U+202E⟩live'],
      ['ad\u200bmin', 'ad⟨U+200B⟩min'],
      ['a\u2066b\u2069', 'a⟨U+2066⟩b⟨U+2069⟩'],
      ['\ufeffroom', '⟨U+FEFF⟩room'],
      ['co\u00adld', 'co⟨U+00AD⟩ld'],
      ['\u3164', '⟨U+3164⟩'],
      ['bell\u0007', 'bell⟨U+0007⟩'],
      ['in\u200dvisible', 'in⟨U+200D⟩visible'],
      ['a\u{e0041}', 'a⟨U+E0041⟩'],
    ])
      expect(visible(text ?? '')).toBe(shown);
  });

  it('stay where they are part of what is read', () => {
    for (const text of [
      'Kühlraum 1',
      'two\nlines\tand a tab',
      '👩‍🔬 and 👩🏽‍🔬',
      '🏴󠁧󠁢󠁥󠁮󠁧󠁿',
      '❤️‍🔥',
      'می‌خواهم',
      'क्‍ष',
      '温度',
      'حرارة',
    ])
      expect(visible(text)).toBe(text);
  });
});
