import { describe, expect, it } from 'vitest';
import { Visitor } from './pages';
import { startServer } from './server';
import { browser, fleet, server, visitor, stage, withVisitor } from './stage';

stage();
withVisitor();

interface List<T> {
  data: T[];
}

describe('the guided start', () => {
  it('leads from an empty platform to a value on a chart and an alarm, goes on after a reload, and goes in one click', async () => {
    const { page } = visitor;
    await visitor.open();
    await page.getByText('No device yet').waitFor();
    await page.getByRole('link', { name: 'Guided start' }).click();
    await page.getByRole('button', { name: 'Begin' }).click();

    // The first value: stored by the server, told by its stream, and drawn.
    const value = page.getByTestId('first-value');
    await expect.poll(() => value.innerText()).toMatch(/^\d+(\.\d)? °C$/);
    await page.getByText('The first value has arrived').waitFor();
    await page
      .getByLabel(/Temperature of My first device/)
      .first()
      .waitFor();
    const { data } = await fleet.call<List<{ id: string; projectUuid: string }>>('GET', '/devices');
    expect(data).toHaveLength(1);
    const id = data[0]?.id ?? '';
    const stored = await fleet.call<List<{ payload: { temperature: number } }>>('GET', `/devices/${id}/data/climate`);
    expect(typeof stored.data[0]?.payload.temperature).toBe('number');

    // It is warmed up: the design reacts, and the device hears of it.
    await page.getByLabel(/Warm it up or cool it down/).fill('40');
    await page.getByText('The fan is on: the design switched it on.').waitFor();
    await page.getByText('The alarm was raised').waitFor();
    await page.getByText('Warning', { exact: true }).waitFor();
    // A higher limit calms it.
    await page.getByLabel('Alarm limit in °C').fill('50');
    await page.getByRole('button', { name: 'Save' }).click();
    await page.getByText('The fan is off.').waitFor();
    await page.getByText('Good', { exact: true }).waitFor();

    await page.reload();
    await expect.poll(() => value.innerText()).toMatch(/°C$/);
    await expect.poll(() => page.getByText(/messages sent/).innerText()).toMatch(/^([2-9]|\d\d)/);
    expect((await fleet.call<List<unknown>>('GET', '/devices')).data).toHaveLength(1);
    await page.getByRole('link', { name: 'Connect a platform' }).waitFor();

    await page.getByRole('button', { name: 'Remove all of it' }).click();
    await page.getByText('Everything that the guided start created has been removed.').waitFor();
    expect((await fleet.call<List<unknown>>('GET', '/devices')).data).toEqual([]);
    expect((await fleet.call<List<unknown>>('GET', '/projects')).data).toEqual([]);
  });

  it('begins with the password that the program prints when its data folder is empty', async () => {
    const first = await startServer({ ISOBAR_ADMIN_PASSWORD: '' });
    const newcomer = await Visitor.comeFirst(browser, first.url);
    try {
      const [, password = ''] = /the password is (\S+)/.exec(first.said) ?? [];
      const { page } = newcomer;
      await page.goto('/');
      await page.getByText('Sign in as admin').waitFor();
      await newcomer.signIn('admin', password);
      await page.getByRole('link', { name: 'Guided start' }).click();
      await page.getByRole('button', { name: 'Begin' }).click();
      await expect.poll(() => page.getByTestId('first-value').innerText()).toMatch(/°C$/);
      await page
        .getByLabel(/Temperature of My first device/)
        .first()
        .waitFor();
      expect([newcomer.strays, newcomer.faults]).toEqual([[], []]);
    } finally {
      await newcomer.leave();
      await first.stop();
    }
  });

  it('keeps its project where other devices have come into it', async () => {
    const { page } = visitor;
    await visitor.open('/start');
    await page.getByRole('button', { name: 'Begin' }).click();
    await page.getByText('The first value has arrived').waitFor();
    const { data } = await fleet.call<List<{ projectUuid: string }>>('GET', '/devices');
    await fleet.device('A real one', data[0]?.projectUuid ?? '');
    await page.getByRole('button', { name: 'Remove all of it' }).click();
    await page.getByText('Its project stays, as it has other devices.').waitFor();
    const left = await fleet.call<List<{ name: string }>>('GET', '/devices');
    expect(left.data.map(({ name }) => name)).toEqual(['A real one']);
  });

  it('tells when the connection is lost, and goes on by itself', async () => {
    const { page } = visitor;
    await visitor.open('/start');
    await page.getByRole('button', { name: 'Begin' }).click();
    await page
      .getByLabel(/Temperature of My first device/)
      .first()
      .waitFor();
    await server.halt();
    await page.getByText('The server does not respond. Check your connection.').first().waitFor();
    await server.resume();
    await page.getByText('The server does not respond. Check your connection.').first().waitFor({ state: 'detached' });
    await page.getByText('Live', { exact: true }).waitFor();
  });

  it('is found in the user’s menu', async () => {
    const { page } = visitor;
    await visitor.open();
    await page.getByRole('button', { name: /account of/ }).click();
    await page.getByRole('menuitem', { name: 'Guided start' }).click();
    await page.getByRole('heading', { level: 1, name: 'Your first device, in two minutes' }).waitFor();
  });
});
