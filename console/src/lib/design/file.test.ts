import { describe, expect, it } from 'vitest';
import { designFile, designFileName, designIn } from './file';
import { equal } from './model';

const TEXT = '{"name": "Cold", "planes": {"cloud": {"elements": {"reading": {"type": "deviceEvent"}}}}}';

describe('a design as a file', () => {
  it('is read as it was written', async () => {
    const design = designIn(TEXT);
    if (!design) throw new Error('this is a design');
    const again = designIn(await designFile(design).text());
    expect(equal(again, design)).toBe(true);
  });

  it('is refused where it holds something else', () => {
    for (const text of ['', 'a,b\n1,2', '[]', '7', 'null', '{"planes": {"cloud": {"elements": []}}}', '{"name": 3}']) {
      expect(designIn(text), text).toBe(null);
    }
  });

  it('has a name that every system takes', () => {
    expect(designFileName('Cold rooms')).toBe('Cold rooms.json');
    expect(designFileName('../a\\b:c\u0000"')).toBe('.. a b c.json');
    expect(designFileName('  ')).toBe('design.json');
    expect(designFileName('x'.repeat(500)).length).toBeLessThan(100);
  });
});
