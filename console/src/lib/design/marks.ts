import { celFault, tokens } from './cel';

/** The part of an expression that a fault is about: where the server says it is, what it names, or what is plainly wrong; else all of it. */
export function markOf(text: string, message: string): { from: number; to: number } {
  const all = tokens(text).filter(({ kind }) => kind !== 'space' && kind !== 'comment');
  const whole = { from: 0, to: text.length };
  const [, line, column] = /\(line (\d+), column (\d+)\)/.exec(message) ?? [];
  if (line !== undefined && column !== undefined) {
    const before = text.split('\n').slice(0, Number(line) - 1);
    const at = before.reduce((sum, { length }) => sum + length + 1, 0) + Number(column) - 1;
    return all.find(({ to }) => to > at) ?? all.at(-1) ?? whole;
  }
  const [, named] = /'([^']+)'/.exec(message) ?? [];
  return all.find(({ kind, text: name }) => kind === 'name' && name === named) ?? celFault(text) ?? whole;
}

/** The line of code that a fault names; else all of it. */
export function lineMarkOf(text: string, message: string): { from: number; to: number } {
  const [, told] = /\bline (\d+)/.exec(message) ?? [];
  const lines = text.split('\n');
  const index = Number(told ?? 0) - 1;
  const line = lines[index];
  if (line === undefined) return { from: 0, to: text.length };
  const from = lines.slice(0, index).reduce((sum, { length }) => sum + length + 1, 0);
  return { from, to: from + line.length };
}
