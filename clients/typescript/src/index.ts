/** The client of Isobar. `Isobar` is where to begin. */
export { Isobar, type Options, type StreamScope } from './client.js';
export { IsobarError, type FieldError } from './errors.js';
export type { components, operations, paths } from './schema.js';
export type { Session } from './session.js';
export type { StreamItem, StreamOptions } from './stream.js';
export type { Limits } from './transport.js';
export type { CallOptions, Data, Item, ListPath, Verb } from './types.js';
