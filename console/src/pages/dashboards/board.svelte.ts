import {
  type Board as Stored,
  type BoardHead,
  type BoardInput,
  createBoard,
  deleteBoard,
  listBoards,
  readBoard,
  writeBoard,
} from '../../api/boards';
import { Failure } from '../../api/failure';
import { type Widget, widgetsOf } from '../../lib/dashboard';
import { type Action, type Resource, action, resource } from '../../lib/resource.svelte';

/** What somebody is about to change. */
interface Draft {
  name: string;
  /** The project on whose devices' pages it is shown; empty: on none. */
  projectUuid: string;
  widgets: Widget[];
  /** The tag of the dashboard when the change began, to see whether somebody else has changed it since. */
  etag: string | null;
}

/** The dashboards of an organization, and the one that is looked at. */
interface Read {
  organizationId: string;
  heads: BoardHead[];
  /** One without an identifier where there is none yet. */
  board: Pick<Stored, 'id' | 'name' | 'isInherited' | 'options' | 'configuration'>;
  etag: string | null;
}

const NONE: Read['board'] = { id: '', name: null, isInherited: false, options: {}, configuration: {} };
const CHANGED_MEANWHILE = 412;

/** Changes that are not saved yet: they outlive the page, and a session that ends in between. */
const drafts = new Map<string, Draft>();

/** The dashboards of an organization, and what its user is about to make of the one that is looked at. */
export class Board {
  readonly read: Resource<Read>;
  draft = $state.raw<Draft | null>(null);
  /** Somebody else has saved meanwhile. */
  isBehind = $state(false);
  readonly save: Action<[isForced?: boolean]>;
  #key = '';

  constructor(
    private readonly organization: () => { id: string; name: string },
    private readonly userId: () => string,
    /** The dashboard that the address names. */
    private readonly chosen: () => string | null,
    private readonly open: (id: string | null) => void,
  ) {
    this.read = resource((signal) => this.#read(this.organization().id, this.chosen(), signal));
    this.save = action(async (isForced = false) => this.#save(isForced));
    $effect(() => {
      this.#key = this.#keyOf(this.#id);
      this.draft = drafts.get(this.#key) ?? null;
      this.isBehind = false;
      this.save.clear();
    });
  }

  /** The dashboard that is looked at; null while another one is being read. */
  current = $derived.by(() => {
    const { value } = this.read;
    if (value?.organizationId !== this.organization().id) return null;
    return value.board.id === pick(value.heads, this.chosen()) ? value : null;
  });
  #id = $derived(this.current?.board.id ?? '');
  heads = $derived.by(() => this.current?.heads ?? []);
  widgets = $derived.by(() => this.draft?.widgets ?? (this.current ? widgetsOf(this.current.board) : []));
  name = $derived.by(() => this.draft?.name ?? this.current?.board.name ?? '');
  projectUuid = $derived.by(() => this.draft?.projectUuid ?? projectOf(this.current?.board.options));
  isEditing = $derived.by(() => this.draft !== null);
  /** Whether it is the organization's own, so that it can be changed and deleted. */
  isOwn = $derived.by(() => this.#id !== '' && this.current?.board.isInherited === false);

  /** The name of the organization that this dashboard is inherited from, as far as it is known. Whoever saves one writes it down. */
  inheritedFrom = $derived.by(() => {
    if (!this.current?.board.isInherited) return null;
    const { organizationName } = this.current.board.options;
    return typeof organizationName === 'string' ? organizationName : '';
  });

  edit(): void {
    const { current } = this;
    if (!current) return;
    this.#keep({
      name: current.board.name ?? '',
      projectUuid: projectOf(current.board.options),
      widgets: widgetsOf(current.board),
      etag: current.etag,
    });
  }

  /** Puts other widgets, or another name. */
  change(part: Partial<Omit<Draft, 'etag'>>): void {
    if (!this.draft) this.edit();
    if (this.draft) this.#keep({ ...this.draft, ...part });
  }

  discard(): void {
    this.#keep(null);
    this.isBehind = false;
    this.save.clear();
    this.read.reload();
  }

  /** Makes one more dashboard, and looks at it. @throws Failure */
  async create(body: BoardInput): Promise<void> {
    const { id, name } = this.organization();
    const options = { ...body.options, organizationId: id, organizationName: name };
    const made = await createBoard(id, { ...body, options });
    this.open(made.id);
  }

  /** Deletes the dashboard that is looked at, and looks at the first one. @throws Failure */
  async remove(): Promise<void> {
    const { current } = this;
    if (!current) return;
    await deleteBoard(this.organization().id, current.board.id, current.etag);
    this.#keep(null);
    this.open(null);
    this.read.reload();
  }

  #keyOf(id: string): string {
    return `${this.userId()}/${this.organization().id}/${id}`;
  }

  #keep(draft: Draft | null): void {
    this.draft = draft;
    if (draft) drafts.set(this.#key, draft);
    else drafts.delete(this.#key);
  }

  async #read(organizationId: string, chosen: string | null, signal?: AbortSignal): Promise<Read> {
    const heads = await listBoards(organizationId, signal);
    const id = pick(heads, chosen);
    if (id === '') return { organizationId, heads, board: NONE, etag: null };
    return { organizationId, heads, ...(await readBoard(organizationId, id, signal)) };
  }

  async #save(isForced: boolean): Promise<void> {
    const { draft, current, isOwn } = this;
    const { id, name } = this.organization();
    if (!draft || !current) return;
    const { options, configuration } = current.board;
    const body: BoardInput = {
      name: draft.name.trim() || null,
      options: { ...options, organizationId: id, organizationName: name, projectUuid: draft.projectUuid || null },
      configuration: { ...configuration, widgets: draft.widgets },
    };
    let saved: Stored;
    try {
      saved = isOwn
        ? await writeBoard(id, current.board.id, body, isForced ? null : draft.etag)
        : await createBoard(id, body);
    } catch (error) {
      if (!(error instanceof Failure) || error.status !== CHANGED_MEANWHILE) throw error;
      this.isBehind = true;
      return;
    }
    const read = await this.#read(id, saved.id);
    // What was changed while it was saved stays to be saved.
    const later = this.draft === draft ? null : this.draft;
    this.#keep(null);
    if (later) drafts.set(this.#keyOf(saved.id), { ...later, etag: read.etag });
    if (isOwn && later) this.draft = { ...later, etag: read.etag };
    this.isBehind = false;
    this.read.set(read);
    if (!isOwn && pick(read.heads, this.chosen()) !== saved.id) this.open(saved.id);
  }
}

/** Returns the identifier of the dashboard that is asked for, or else of the first; empty: there is none. */
function pick(heads: readonly BoardHead[], chosen: string | null): string {
  return (heads.find(({ id }) => id === chosen) ?? heads[0])?.id ?? '';
}

function projectOf(options: Stored['options'] | undefined): string {
  const project = options?.projectUuid;
  return typeof project === 'string' ? project : '';
}
