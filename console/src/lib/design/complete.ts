import { isIdentifier } from './cel';

/** What there is to complete in an expression. */
export interface Known {
  /** Paths of members of the incoming value, each by its names. */
  payload: readonly (readonly string[])[];
  settings: readonly string[];
  /** Storage elements, with the paths of what is stored. */
  stored: ReadonlyMap<string, readonly (readonly string[])[]>;
}

export interface Completion {
  label: string;
  /** What is written instead, where it is not the label. */
  apply?: string;
  kind: 'variable' | 'property' | 'function' | 'constant';
}

export interface Completions {
  /** Where what is completed begins. */
  from: number;
  options: readonly Completion[];
}

const DEVICE = ['id', 'name', 'organizationId', 'meta', 'statusInt'];
const EVENT = ['id', 'elementName', 'receivedAt', 'payload'];
const STATUSES = ['none', 'good', 'info', 'warning', 'critical', 'missing'];
const FUNCTIONS = 'has int uint double string bool timestamp duration type dyn size'.split(' ');
const MATH = ['greatest', 'least', 'abs', 'round', 'floor', 'ceil'];
const METHODS =
  'all exists exists_one filter map matches size contains startsWith endsWith lowerAscii upperAscii trim split join replace substring indexOf lastIndexOf charAt getFullYear getMonth getDate getDayOfMonth getDayOfWeek getDayOfYear getHours getMinutes getSeconds getMilliseconds'.split(
    ' ',
  );

/** What may follow a text that ends where somebody types; null where nothing can be told. */
export function celCompletions(before: string, known: Known, isAsked: boolean): Completions | null {
  const [chain = ''] = /[A-Za-z_][\w.]*$/.exec(before) ?? [];
  if (chain === '' && !isAsked) return null;
  // Within a text nothing is completed.
  if (/^(?:[^'"]|'[^']*'|"[^"]*")*['"][^'"]*$/.test(before)) return null;
  const point = chain.lastIndexOf('.');
  if (point < 0) return { from: before.length - chain.length, options: roots() };
  const options = members(chain.slice(0, point), known);
  const from = before.length - chain.length + point + 1;
  return { from, options: [...options, ...METHODS.map((label): Completion => ({ label, kind: 'function' }))] };
}

function roots(): Completion[] {
  const named = (labels: readonly string[], kind: Completion['kind']): Completion[] =>
    labels.map((label) => ({ label, kind }));
  return [
    ...named(['payload', 'settings', 'last', 'device', 'event'], 'variable'),
    ...named(STATUSES, 'constant'),
    ...named([...FUNCTIONS, 'math'], 'function'),
    ...named(['true', 'false', 'null'], 'constant'),
  ];
}

function members(path: string, known: Known): Completion[] {
  const [root = '', ...steps] = path.split('.');
  const inside = steps.join('.');
  if (root === 'math' && inside === '') return MATH.map((label) => ({ label, kind: 'function' }));
  if (root === 'settings' && inside === '') return properties(known.settings);
  if (root === 'device' && inside === '') return properties(DEVICE);
  if (root === 'event' && inside === '') return properties(EVENT);
  if (root === 'payload') return properties(children(known.payload, inside));
  if (root === 'event' && steps[0] === 'payload') return properties(children(known.payload, steps.slice(1).join('.')));
  if (root === 'last' && inside === '') return properties([...known.stored.keys()]);
  if (root === 'last') return properties(children(known.stored.get(steps[0] ?? '') ?? [], steps.slice(1).join('.')));
  return [];
}

/** The members right beneath a path. */
function children(paths: readonly (readonly string[])[], under: string): string[] {
  const above = under === '' ? [] : under.split('.');
  const found = paths
    .filter((names) => above.every((name, at) => names[at] === name))
    .map((names) => names[above.length] ?? '');
  return [...new Set(found)].filter((name) => name !== '');
}

/** A name that is no identifier stands in brackets, in place of the point. */
function properties(names: readonly string[]): Completion[] {
  return names.map((label) =>
    isIdentifier(label)
      ? { label, kind: 'property' }
      : { label, kind: 'property', apply: `['${label.replaceAll('\\', '\\\\').replaceAll("'", "\\'")}']` },
  );
}
