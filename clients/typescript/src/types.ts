import type { MaybeOptionalInit, ParseAsResponse } from 'openapi-fetch';
import type {
  HttpMethod,
  MediaType,
  PathsWithMethod,
  RequiredKeysOf,
  SuccessResponse,
} from 'openapi-typescript-helpers';
import type { paths } from './schema.js';
import type { Limits } from './transport.js';

/** Bounds of one call, over those of the client. */
export interface CallOptions {
  limits?: Limits;
}

type Answers<P extends keyof paths, M extends HttpMethod> =
  paths[P] extends Record<M, { responses: infer R }> ? R : never;
type Answer<P extends keyof paths, M extends HttpMethod, I> =
  Answers<P, M> extends infer R extends object ? ParseAsResponse<SuccessResponse<R, MediaType>, I> : never;

/** Answer of a call: that in JSON, or the form that `parseAs` names. */
export type Data<P extends keyof paths, M extends HttpMethod, I = object> = I extends { parseAs: string }
  ? Answer<P, M, I>
  : Exclude<Answer<P, M, I>, string>;

type Init<I> = I & CallOptions & { [key: string]: unknown };

/** Calls an operation: its path as the document has it, then what it takes. @throws IsobarError */
export type Verb<M extends HttpMethod> = <
  P extends PathsWithMethod<paths, M>,
  I extends MaybeOptionalInit<paths[P], M>,
>(
  path: P,
  ...init: RequiredKeysOf<I> extends never ? [Init<I>?] : [Init<I>]
) => Promise<Data<P, M, I>>;

/** Paths of the lists that come in pages. */
export type ListPath = {
  [P in PathsWithMethod<paths, 'get'>]: Data<P, 'get'> extends { meta: { hasNextPage: boolean }; data: unknown[] }
    ? P
    : never;
}[PathsWithMethod<paths, 'get'>];

/** Item of a list. */
export type Item<P extends ListPath> = Data<P, 'get'> extends { data: (infer T)[] } ? T : never;
