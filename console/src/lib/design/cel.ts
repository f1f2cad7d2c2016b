/** Expressions as text: their tokens, what is plainly wrong with them, and the names they use. Whether one compiles is the server's to say. */

export type TokenKind = 'space' | 'comment' | 'name' | 'number' | 'text' | 'sign' | 'bad';

export interface Token {
  kind: TokenKind;
  from: number;
  to: number;
  text: string;
}

const NAME = /[A-Za-z_][A-Za-z0-9_]*/y;
const SPACE = /\s+/y;
const COMMENT = /\/\/[^\n]*/y;
const NUMBER = /(?:0[xX][0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)u?/y;
const SIGN = /&&|\|\||[<>=!]=|[-+*/%<>!?:.,()[\]{}]/y;
const QUOTE = /([rR]?)('''|"""|'|")/y;

/** Words that name no member after a point. */
const RESERVED = new Set(
  'true false null in as break const continue else for function if import let loop package namespace return var void while'.split(
    ' ',
  ),
);

export function isIdentifier(text: string): boolean {
  return /^[A-Za-z_][A-Za-z0-9_]*$/.test(text) && !RESERVED.has(text);
}

/** All tokens of an expression, without gaps. */
export function tokens(text: string): Token[] {
  const found: Token[] = [];
  let at = 0;
  const take = (kind: TokenKind, to: number): void => {
    found.push({ kind, from: at, to, text: text.slice(at, to) });
    at = to;
  };
  const match = (pattern: RegExp): number | null => {
    pattern.lastIndex = at;
    return pattern.test(text) ? pattern.lastIndex : null;
  };
  while (at < text.length) {
    QUOTE.lastIndex = at;
    const quote = QUOTE.exec(text);
    const simple: [TokenKind, RegExp][] = [
      ['space', SPACE],
      ['comment', COMMENT],
      ['number', NUMBER],
      ['name', NAME],
      ['sign', SIGN],
    ];
    if (quote) {
      const end = endOfText(text, QUOTE.lastIndex, quote[2] ?? '', quote[1] !== '');
      take(end === null ? 'bad' : 'text', end ?? text.length);
      continue;
    }
    const hit = simple.map(([kind, pattern]) => ({ kind, to: match(pattern) })).find(({ to }) => to !== null);
    if (hit?.to) take(hit.kind, hit.to);
    else take('bad', at + 1);
  }
  return found;
}

/** Where a text ends that is closed by `quote`; null where it is not closed. */
function endOfText(text: string, from: number, quote: string, isRaw: boolean): number | null {
  for (let at = from; at < text.length; at += 1) {
    if (text[at] === '\\' && !isRaw) at += 1;
    else if (text.startsWith(quote, at)) return at + quote.length;
    else if (quote.length === 1 && text[at] === '\n') return null;
  }
  return null;
}

export type CelFaultCode = 'empty' | 'unclosed-text' | 'unclosed' | 'unopened' | 'character';
export interface CelFault {
  code: CelFaultCode;
  from: number;
  to: number;
}

const CLOSED_BY: Readonly<Record<string, string>> = { '(': ')', '[': ']', '{': '}' };

/** What can be seen to be wrong without a compiler; null where nothing is. */
export function celFault(text: string): CelFault | null {
  const all = tokens(text);
  if (all.every(({ kind }) => kind === 'space' || kind === 'comment'))
    return { code: 'empty', from: 0, to: text.length };
  const open: Token[] = [];
  for (const token of all) {
    if (token.kind === 'bad') {
      const isText = /^[rR]?['"]/.test(token.text);
      return { code: isText ? 'unclosed-text' : 'character', from: token.from, to: token.to };
    }
    if (token.kind !== 'sign') continue;
    if (token.text in CLOSED_BY) open.push(token);
    else if (')]}'.includes(token.text)) {
      const opened = open.pop();
      if (!opened || CLOSED_BY[opened.text] !== token.text) return { code: 'unopened', from: token.from, to: token.to };
    }
  }
  const left = open.pop();
  return left ? { code: 'unclosed', from: left.from, to: left.to } : null;
}

/** The text that a quoted one stands for, where it is a plain one. */
function unquoted(token: string): string | null {
  const plain = /^(['"])([^\\]*)\1$/.exec(token);
  return plain ? (plain[2] ?? '') : null;
}

/** Gives another name to a member of `settings` or `last` wherever an expression uses it. */
export function renameMember(text: string, root: 'settings' | 'last', from: string, to: string): string {
  const all = tokens(text).filter(({ kind }) => kind !== 'space' && kind !== 'comment');
  const member = isIdentifier(to) ? `.${to}` : `['${to.replaceAll('\\', '\\\\').replaceAll("'", "\\'")}']`;
  let written = '';
  let at = 0;
  for (let index = 0; index < all.length; index += 1) {
    if (all[index]?.text !== root || all[index - 1]?.text === '.') continue;
    const [point, name, close] = [all[index + 1], all[index + 2], all[index + 3]];
    if (!point || !name) continue;
    const isMember = point.text === '.' && name.kind === 'name' && name.text === from;
    const isIndex = point.text === '[' && name.kind === 'text' && unquoted(name.text) === from && close?.text === ']';
    if (!isMember && !isIndex) continue;
    written += text.slice(at, point.from) + member;
    at = isIndex && close ? close.to : name.to;
  }
  return written + text.slice(at);
}

/** A piece of a message: a text, or an expression between `{{` and `}}`. */
export interface MessagePart {
  isExpression: boolean;
  from: number;
  to: number;
}

/** The pieces of a message. What is not closed is a text. */
export function messageParts(text: string): MessagePart[] {
  const parts: MessagePart[] = [];
  let at = 0;
  for (;;) {
    const open = text.indexOf('{{', at);
    const close = open < 0 ? -1 : endOfExpression(text, open + 2);
    if (open < 0 || close < 0) {
      parts.push({ isExpression: false, from: at, to: text.length });
      return parts;
    }
    parts.push({ isExpression: false, from: at, to: open + 2 }, { isExpression: true, from: open + 2, to: close });
    at = close;
  }
}

/** The `}}` that closes an expression: the first one that no bracket of the expression needs. */
function endOfExpression(text: string, from: number): number {
  let fallback = -1;
  for (let close = text.indexOf('}}', from); close >= 0; close = text.indexOf('}}', close + 1)) {
    if (fallback < 0) fallback = close;
    const fault = celFault(text.slice(from, close));
    if (fault === null) return close;
  }
  return fallback;
}

/** Changes the expressions of a message, and leaves its text. */
export function mapMessage(text: string, change: (expression: string) => string): string {
  return messageParts(text)
    .map(({ isExpression, from, to }) => (isExpression ? change(text.slice(from, to)) : text.slice(from, to)))
    .join('');
}
