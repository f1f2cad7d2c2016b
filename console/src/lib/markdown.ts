/**
 * A small part of Markdown as a tree, of which a part of the page makes elements: no HTML ever comes of a text. Headings, lists,
 * quotes, rules, blocks of code; strong, emphasis, code and links. What is none of these is a paragraph of words.
 */

export type Inline =
  { kind: 'words' | 'strong' | 'emphasis' | 'code'; text: string } | { kind: 'link'; text: string; href: string };

export type Block =
  | { kind: 'heading'; level: number; words: Inline[] }
  | { kind: 'paragraph' | 'quote'; words: Inline[] }
  | { kind: 'list'; isOrdered: boolean; items: Inline[][] }
  | { kind: 'code'; text: string }
  | { kind: 'rule' };

const FENCE = /^```/;
const HEADING = /^(#{1,3})\s+(.+)$/;
const ITEM = /^\s*(?:[-*+]|(\d{1,9})[.)])\s+(.*)$/;
const QUOTE = /^>\s?(.*)$/;
const RULE = /^(?:-{3,}|\*{3,}|_{3,})\s*$/;
/** Code, a link, strong, emphasis: whichever begins first. */
const INLINE = /`([^`]+)`|\[([^\]]+)\]\(([^)\s]+)\)|\*\*([^*]+)\*\*|\*([^*\s][^*]*)\*/;

/** Reads a text as blocks. */
export function readMarkdown(text: string): Block[] {
  const blocks: Block[] = [];
  const lines = text.replaceAll('\r\n', '\n').split('\n');
  let at = 0;
  /** Takes the lines that go on with a block, and returns what each has of it. */
  const taken = (pattern: RegExp): string[][] => {
    const found: string[][] = [];
    for (let line = lines[at]; line !== undefined; line = lines[at]) {
      const match = pattern.exec(line);
      if (!match) break;
      found.push([...match]);
      at += 1;
    }
    return found;
  };
  while (at < lines.length) {
    const line = lines[at] ?? '';
    const heading = HEADING.exec(line);
    if (line.trim() === '') {
      at += 1;
    } else if (FENCE.test(line)) {
      const end = lines.findIndex((one, index) => index > at && FENCE.test(one));
      const last = end === -1 ? lines.length : end;
      blocks.push({ kind: 'code', text: lines.slice(at + 1, last).join('\n') });
      at = last + 1;
    } else if (heading) {
      blocks.push({ kind: 'heading', level: heading[1]?.length ?? 1, words: readInline(heading[2] ?? '') });
      at += 1;
    } else if (RULE.test(line)) {
      blocks.push({ kind: 'rule' });
      at += 1;
    } else if (ITEM.test(line)) {
      const items = taken(ITEM);
      const isOrdered = items[0]?.[1] !== undefined;
      blocks.push({ kind: 'list', isOrdered, items: items.map(([, , words]) => readInline(words ?? '')) });
    } else if (QUOTE.test(line)) {
      const words = taken(QUOTE).map(([, quoted]) => quoted ?? '');
      blocks.push({ kind: 'quote', words: readInline(words.join('\n')) });
    } else {
      blocks.push({ kind: 'paragraph', words: readInline(paragraph()) });
    }
  }
  return blocks;

  function paragraph(): string {
    const words = [lines[at] ?? ''];
    at += 1;
    for (let line = lines[at]; line !== undefined && !begins(line); line = lines[at]) {
      words.push(line);
      at += 1;
    }
    return words.join('\n');
  }
}

/** Whether a line begins another block, or none. */
function begins(line: string): boolean {
  return line.trim() === '' || [FENCE, HEADING, RULE, ITEM, QUOTE].some((pattern) => pattern.test(line));
}

function readInline(text: string): Inline[] {
  const words: Inline[] = [];
  let rest = text;
  for (let match = INLINE.exec(rest); match; match = INLINE.exec(rest)) {
    const [whole, code, label, address, strong, emphasis] = match;
    if (match.index > 0) words.push({ kind: 'words', text: rest.slice(0, match.index) });
    words.push(inlineOf(whole, { code, label, address, strong, emphasis }));
    rest = rest.slice(match.index + whole.length);
  }
  if (rest !== '') words.push({ kind: 'words', text: rest });
  return words;
}

interface Found {
  code: string | undefined;
  label: string | undefined;
  address: string | undefined;
  strong: string | undefined;
  emphasis: string | undefined;
}

function inlineOf(whole: string, { code, label, address, strong, emphasis }: Found): Inline {
  if (code !== undefined) return { kind: 'code', text: code };
  if (strong !== undefined) return { kind: 'strong', text: strong };
  if (emphasis !== undefined) return { kind: 'emphasis', text: emphasis };
  const href = safeAddress(address ?? '');
  return href === null ? { kind: 'words', text: whole } : { kind: 'link', text: label ?? href, href };
}

/** Returns an address that a link may lead to: a page or a mail, or a place in this console; null: another, such as a script. */
export function safeAddress(address: string): string | null {
  if (/^\/(?![/\\])/.test(address)) return address;
  try {
    return ['https:', 'http:', 'mailto:'].includes(new URL(address).protocol) ? address : null;
  } catch {
    return null;
  }
}
