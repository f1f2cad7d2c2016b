import { untrack } from 'svelte';
import type { Page } from '../api/client';
import { connection } from '../api/connection.svelte';
import { type Failure, asFailure, isAbort } from '../api/failure';

/** Rows that are read at once. */
const PAGE_ROWS = 100;
/** Pages that are kept: beyond, those that were not looked at for longest go. */
const PAGES_MAX = 60;

/**
 * A list of any length, read page by page as its rows come into view. Whatever `read` looks at before it first waits decides which
 * list it is: when that changes, the list begins anew.
 */
export class Rows<T> {
  total = $state<number | undefined>();
  failure = $state.raw<Failure>();
  loading = $state(true);
  #pages = new Map<number, T[]>();
  #asked = new Set<number>();
  #version = $state(0);
  #turn = $state(0);
  #stop = new AbortController();
  /** Which pages are in view. */
  #view = { first: 1, last: 1 };
  /** Whether the list is read again as it is, so that its rows stay until newer ones are there. */
  #isRefresh = false;
  /** Counts the lists: another order or search is another list, which begins at its top. */
  generation = $state(0);

  /** @param start the row at which a list that begins anew is looked at first */
  constructor(
    private readonly read: (page: number, limit: number, signal: AbortSignal) => Promise<Page<T>>,
    start: () => number = () => 0,
  ) {
    $effect(() => {
      void this.#turn;
      this.#stop = new AbortController();
      this.#asked.clear();
      this.loading = true;
      const isRefresh = this.#isRefresh;
      this.#isRefresh = false;
      if (!isRefresh) {
        const page = Math.floor(untrack(start) / PAGE_ROWS) + 1;
        this.#view = { first: page, last: page };
      }
      const { first, last } = this.#view;
      for (let page = first; page <= last; page += 1) void this.#load(page, isRefresh ? 'refresh' : 'anew');
      return () => this.#stop.abort();
    });
    $effect(() =>
      connection.onReturn(() => {
        if (this.failure?.mayPass) this.reload();
      }),
    );
  }

  /** The row at this place, if it has been read. */
  at(index: number): T | undefined {
    void this.#version;
    return this.#pages.get(Math.floor(index / PAGE_ROWS) + 1)?.[index % PAGE_ROWS];
  }

  /** Sees to it that these rows are read. */
  want(first: number, last: number): void {
    if (this.total === undefined) return;
    this.#view = { first: Math.floor(first / PAGE_ROWS) + 1, last: Math.floor(last / PAGE_ROWS) + 1 };
    for (let page = this.#view.first; page <= this.#view.last; page += 1) {
      if ((page - 1) * PAGE_ROWS < this.total && !this.#pages.has(page)) void this.#load(page, 'more');
    }
  }

  reload(): void {
    this.#isRefresh = true;
    this.#turn += 1;
  }

  #keepView(): void {
    for (const page of this.#pages.keys()) {
      if (page >= this.#view.first && page <= this.#view.last) continue;
      this.#pages.delete(page);
      this.#asked.delete(page);
    }
  }

  async #load(page: number, how: 'anew' | 'refresh' | 'more'): Promise<void> {
    if (this.#asked.has(page)) return;
    this.#asked.add(page);
    const { signal } = this.#stop;
    try {
      const answer = await this.read(page, PAGE_ROWS, signal);
      if (signal.aborted) return;
      if (how === 'anew') {
        this.#pages.clear();
        this.generation += 1;
      }
      // What is out of view is older now, and read again when it comes into view.
      if (how === 'refresh') this.#keepView();
      this.#pages.set(page, answer.data);
      for (const oldest of this.#pages.keys()) {
        if (this.#pages.size <= PAGES_MAX) break;
        this.#pages.delete(oldest);
        this.#asked.delete(oldest);
      }
      this.total = answer.meta.totalDocs;
      this.failure = undefined;
      this.#version += 1;
    } catch (error) {
      if (signal.aborted || isAbort(error)) return;
      this.failure = asFailure(error);
      this.#asked.delete(page);
    } finally {
      if (!signal.aborted) this.loading = false;
    }
  }
}
