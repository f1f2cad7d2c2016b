import { parseJson } from '../lib/design/json-text';
import { type Design, readDesign } from '../lib/design/model';
import { type Schemas, api, done } from './client';
import { Failure, failureFrom } from './failure';
import { forgetMeanings } from './meanings.svelte';

export type DryRun = Schemas['DryRun'];
export type DryRunInput = Schemas['DryRunInput'];
export type Specification = Schemas['Specification'];
export type SpecificationVersion = Schemas['SpecificationVersion'];
export type WholeSpecificationVersion = Schemas['WholeSpecificationVersion'];

/** A design as the server has it. */
export interface StoredDesign {
  design: Design;
  /** What was said of this version when it was saved. */
  note: string;
  etag: string | null;
  lastModified: string;
  /** Numbers of which the browser does not keep every digit. */
  cut: readonly string[];
}

/** The member of `meta` in which the note of a version is kept. */
const NOTE = 'note';

/** Takes the note out of a design: it belongs to one version alone. */
export function withoutNote(design: Design): { design: Design; note: string } {
  const { [NOTE]: note, ...meta } = design.meta;
  return typeof note === 'string' ? { design: { ...design, meta }, note } : { design, note: '' };
}

/** Reads a project's design. @throws Failure */
export async function readSpecification(id: string, signal?: AbortSignal): Promise<StoredDesign> {
  // As a text, so that no digit of it is lost unseen.
  const options = { params: { path: { id } }, parseAs: 'text' as const, ...(signal ? { signal } : {}) };
  const { data, error, response } = await api.GET('/v2/projects/{id}/specification', options);
  if (!response.ok) throw failureFrom(response, error);
  const parsed = parseJson(data ?? '');
  const read = parsed.isGood ? readDesign(parsed.root.value) : null;
  if (!parsed.isGood || !read?.isGood) throw new Failure(500, 'the server has answered a design that cannot be read');
  const { lastModified } = parsed.root.value as Specification;
  return { ...withoutNote(read.design), etag: response.headers.get('etag'), lastModified, cut: parsed.cut };
}

/** Whether the server has a newer design than the one of this tag. @throws Failure */
export async function isOutdated(id: string, etag: string): Promise<boolean> {
  const params = { path: { id }, header: { 'If-None-Match': etag } };
  const { response, error } = await api.GET('/v2/projects/{id}/specification', { params, parseAs: 'text' });
  if (response.status === 304) return false;
  if (!response.ok) throw failureFrom(response, error);
  return response.headers.get('etag') !== etag;
}

/** Writes a design, if the one of this tag is still in force. @throws Failure; 412 where it is not */
export async function writeSpecification(
  id: string,
  { name, description, createVersion, meta, planes }: Design,
  note: string,
  etag: string,
): Promise<Specification> {
  const body = { name, description, createVersion, meta: note === '' ? meta : { ...meta, [NOTE]: note }, planes };
  const params = { path: { id }, header: { 'If-Match': etag } };
  const saved = await done(api.PUT('/v2/projects/{id}/specification', { params, body }));
  forgetMeanings();
  return saved;
}

/** Tries a design out: nothing comes of it. @throws Failure */
export function dryRun(id: string, body: DryRunInput, signal?: AbortSignal): Promise<DryRun> {
  return done(
    api.POST('/v2/projects/{id}/specification/test', { params: { path: { id } }, body, ...(signal ? { signal } : {}) }),
  );
}
