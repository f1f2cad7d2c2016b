import { type Schemas, api, done } from '../../api/client';
import { type Widget, widgetsOf } from '../../lib/dashboard';
import { type Action, type Resource, action, resource } from '../../lib/resource.svelte';

type Dashboard = Schemas['Dashboard'];

/** What somebody is about to change. */
interface Draft {
  name: string;
  widgets: Widget[];
  /** The dashboard as it was when the change began, to see whether somebody else has changed it since. */
  base: string;
}

/** Changes that are not saved yet: they outlive the page, and a session that ends in between. */
const drafts = new Map<string, Draft>();

/** The dashboard of an organization, and what its user is about to make of it. */
export class Board {
  readonly read: Resource<Dashboard>;
  draft = $state.raw<Draft | null>(null);
  /** Somebody else has saved meanwhile. */
  isBehind = $state(false);
  readonly save: Action<[isForced?: boolean]>;
  #key = '';

  constructor(
    private readonly organization: () => { id: string; name: string },
    private readonly userId: () => string,
  ) {
    this.read = resource((signal) => this.#fetch(this.organization().id, signal));
    this.save = action(async (isForced = false) => this.#save(isForced));
    $effect(() => {
      this.#key = `${this.userId()}/${this.organization().id}`;
      this.draft = drafts.get(this.#key) ?? null;
      this.isBehind = false;
      this.save.clear();
    });
  }

  widgets = $derived.by(() => this.draft?.widgets ?? (this.read.value ? widgetsOf(this.read.value) : []));
  name = $derived.by(() => this.draft?.name ?? this.read.value?.name ?? '');
  isEditing = $derived.by(() => this.draft !== null);

  /** The organization that this dashboard is inherited from. Whoever saves one here writes down whose it is. */
  inheritedFrom = $derived.by(() => {
    const { organizationId, organizationName } = this.read.value?.options ?? {};
    if (typeof organizationId !== 'string' || organizationId === this.organization().id) return null;
    return typeof organizationName === 'string' ? organizationName : '';
  });

  edit(): void {
    const dashboard = this.read.value;
    if (!dashboard) return;
    this.#keep({ name: dashboard.name ?? '', widgets: widgetsOf(dashboard), base: JSON.stringify(dashboard) });
  }

  /** Puts other widgets, or another name. */
  change(part: Partial<Pick<Draft, 'name' | 'widgets'>>): void {
    if (!this.draft) this.edit();
    if (this.draft) this.#keep({ ...this.draft, ...part });
  }

  discard(): void {
    this.#keep(null);
    this.isBehind = false;
    this.save.clear();
    this.read.reload();
  }

  #keep(draft: Draft | null): void {
    this.draft = draft;
    if (draft) drafts.set(this.#key, draft);
    else drafts.delete(this.#key);
  }

  #fetch(id: string, signal?: AbortSignal): Promise<Dashboard> {
    const params = { path: { id } };
    return done(api.GET('/v2/organizations/{id}/dashboard', { params, ...(signal ? { signal } : {}) }));
  }

  async #save(isForced: boolean): Promise<void> {
    const { draft } = this;
    const { id, name } = this.organization();
    if (!draft) return;
    const now = await this.#fetch(id);
    if (!isForced && JSON.stringify(now) !== draft.base) {
      this.isBehind = true;
      return;
    }
    const body: Schemas['DashboardInput'] = {
      name: draft.name.trim() || null,
      options: { ...now.options, organizationId: id, organizationName: name },
      configuration: { ...now.configuration, widgets: draft.widgets },
    };
    const saved = await done(api.PUT('/v2/organizations/{id}/dashboard', { params: { path: { id } }, body }));
    // What was changed while it was saved stays to be saved.
    if (this.draft === draft) this.#keep(null);
    else if (this.draft) this.#keep({ ...this.draft, base: JSON.stringify(saved) });
    this.isBehind = false;
    this.read.set(saved);
  }
}
