import { describe, expect, it } from 'vitest';
import { readMarkdown, safeAddress } from './markdown';

const words = (text: string) => ({ kind: 'words', text });

describe('markdown', () => {
  it('is read as blocks', () => {
    const text = '# On call\nAda,\n*now*\n\n- one\n- **two**\n1. first\n> quoted\n---\n```\n# code\n```\n\nend';
    expect(readMarkdown(text)).toEqual([
      { kind: 'heading', level: 1, words: [words('On call')] },
      { kind: 'paragraph', words: [words('Ada,\n'), { kind: 'emphasis', text: 'now' }] },
      { kind: 'list', isOrdered: false, items: [[words('one')], [{ kind: 'strong', text: 'two' }], [words('first')]] },
      { kind: 'quote', words: [words('quoted')] },
      { kind: 'rule' },
      { kind: 'code', text: '# code' },
      { kind: 'paragraph', words: [words('end')] },
    ]);
    expect(readMarkdown('```\nopen')).toEqual([{ kind: 'code', text: 'open' }]);
    expect(readMarkdown(' \n\n')).toEqual([]);
  });

  it('has no elements but its own: HTML stays words', () => {
    expect(readMarkdown('<script>alert(1)</script>')).toEqual([
      { kind: 'paragraph', words: [words('<script>alert(1)</script>')] },
    ]);
  });

  it('links to pages, mail and places here alone', () => {
    const link = (text: string) => readMarkdown(text)[0];
    expect(link('[a](https://example.com/x)')).toEqual({
      kind: 'paragraph',
      words: [{ kind: 'link', text: 'a', href: 'https://example.com/x' }],
    });
    for (const good of ['http://a.example', 'mailto:a@a.example', '/devices?status=missing']) {
      expect(safeAddress(good)).toBe(good);
    }
    for (const bad of ['javascript:alert(1)', 'JaVaScRiPt:x', 'data:text/html,x', '//evil.example', '/\\evil', 'x']) {
      expect(safeAddress(bad)).toBeNull();
      expect(JSON.stringify(link(`[a](${bad})`))).not.toContain('href');
    }
  });
});
