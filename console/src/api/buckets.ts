import { isNumber } from '../lib/exact';
import { number } from '../lib/format';
import { type Key, type Point, type Span, fieldOf } from '../lib/series';
import { type Schemas, api, done } from './client';
import { type Failure, asFailure, isAbort } from './failure';

/** Fields that one question takes. */
const FIELDS_MAX = 10;

/** What numbers came to, of each of these keys. */
export interface Question {
  keys: readonly Key[];
  span: Span;
  /** So many buckets at most, or else the width of one, as a former answer told it. */
  width: { points: number } | { every: string };
  /** The path of the time in payloads, where it counts instead of the moment of arrival. */
  timePath?: string | undefined;
  /** By key, what an earlier question came to: what was refused then is not asked for again. */
  failures?: readonly (Failure | undefined)[];
}

export interface Answer {
  /** How wide a bucket is; null: nothing was there. */
  every: string | null;
  /** By key, in order of time. */
  series: Point[][];
  /** By key, why it could not be read. */
  failures: (Failure | undefined)[];
}

/** What is asked of each bucket; the first number comes as it was sent. */
const FUNCTIONS = ['count', 'mean', 'min', 'max', 'first'];

/** How much later than the time that it tells of a value may have arrived: as much as the server takes. */
const LATE = '31d';

/** Asks for buckets: one call for each element of each device. What fails fails for its own keys, unless all does. @throws Failure */
export async function buckets(question: Question, signal: AbortSignal): Promise<Answer> {
  const { keys } = question;
  const refused = keys.map((_, place) =>
    question.failures?.[place]?.isRefusal ? question.failures[place] : undefined,
  );
  const answer: Answer = { every: null, series: keys.map(() => []), failures: refused };
  const calls = groups(keys, refused).map(async (places) => {
    try {
      const { meta, data } = await ask(question, places, signal);
      answer.every ??= meta.every;
      for (const place of places) answer.series[place] = points(data, fieldOf(keys[place]?.path ?? ''));
    } catch (error) {
      if (isAbort(error) || signal.aborted) throw error;
      for (const place of places) answer.failures[place] = asFailure(error);
    }
  });
  await Promise.all(calls);
  const [first] = answer.failures;
  if (first && answer.failures.every((failure) => failure)) throw first;
  return answer;
}

/** Which keys go into one call: the places of those of one element of one device. */
function groups(keys: readonly Key[], refused: readonly (Failure | undefined)[]): number[][] {
  const found = new Map<string, number[][]>();
  keys.forEach(({ deviceId, elementName }, place) => {
    if (refused[place]) return;
    const name = `${deviceId}/${elementName}`;
    const calls = found.get(name) ?? [];
    const last = calls.at(-1);
    if (last && last.length < FIELDS_MAX) last.push(place);
    else calls.push([place]);
    found.set(name, calls);
  });
  return [...found.values()].flat();
}

function ask(
  { keys, span, width, timePath }: Question,
  places: readonly number[],
  signal: AbortSignal,
): Promise<Schemas['Buckets']> {
  const { deviceId = '', elementName = '' } = keys[places[0] ?? 0] ?? {};
  const query = {
    fields: [...new Set(places.map((place) => fieldOf(keys[place]?.path ?? '')))].join(','),
    from: new Date(span.from).toISOString(),
    to: new Date(span.to).toISOString(),
    functions: FUNCTIONS,
    zone: Intl.DateTimeFormat().resolvedOptions().timeZone,
    ...width,
    ...(timePath ? { timeField: fieldOf(timePath), late: LATE } : {}),
  };
  const path = { id: deviceId, elementName };
  return done(api.GET('/v2/devices/{id}/data/{elementName}/buckets', { params: { path, query }, signal }));
}

/** The buckets in which this field has numbers. */
function points(data: readonly Schemas['Bucket'][], field: string): Point[] {
  return data.flatMap(({ from, to, fields }) => {
    const { mean, min, max, count, first } = fields[field] ?? {};
    if (typeof mean !== 'number' || typeof min !== 'number' || typeof max !== 'number') return [];
    const alone = count === 1 && isNumber(first) ? { text: number(first) } : {};
    return [{ from: Date.parse(from), to: Date.parse(to), count: count ?? 0, mean, min, max, ...alone }];
  });
}
