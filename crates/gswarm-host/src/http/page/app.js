// The live page: values and events from the WebSocket, sessions from the API.
// Text from outside reaches the document through textContent only.

const ABSENT = '-';
const GIB = 1024 ** 3;
const PAINT_MS_MIN = 200;
const HISTORY_POINTS = 60;
const HISTORY_STEP_MS = 1000;
/// The host's own limit, applied here too because no message says that nothing came.
const SILENT_MS_MAX = 30_000;
const BACKOFF_MS = [1000, 2000, 4000, 8000, 10_000];
/// A silent socket is asked for a snapshot, and given up when that brings nothing.
const QUIET_MS_MAX = 15_000;
const ANSWER_MS_MAX = 10_000;
const RESUBSCRIBE_MS = 3000;
const SESSIONS_MS = 3000;
const SESSIONS_SHOWN_MAX = 50;
const EVENTS_SHOWN_MAX = 20;

const plain = (digits) => (value) => value.toFixed(digits);
const rate = (value) => {
  const giga = value / 1e9;
  return giga.toFixed(giga >= 100 ? 0 : giga >= 10 ? 1 : 2);
};
const whole = plain(0);

/// Cells with one number: metric, heading, unit, spelling, what it means.
const NUMBERS = [
  ['sm_activity', 'SM', '%', whole, 'Share of multiprocessors with work'],
  ['tensor_activity', 'Tensor', '%', whole, 'Share of time the tensor pipe was busy'],
  ['device_memory_bandwidth_bytes_per_second', 'DRAM', 'GB/s', rate, 'Device memory traffic'],
  ['pcie_rx_bytes_per_second', 'PCIe rx', 'GB/s', rate, 'Host to GPU over PCIe'],
  ['pcie_tx_bytes_per_second', 'PCIe tx', 'GB/s', rate, 'GPU to host over PCIe'],
  ['nvlink_rx_bytes_per_second', 'NVL rx', 'GB/s', rate, 'Received over all NVLinks'],
  ['nvlink_tx_bytes_per_second', 'NVL tx', 'GB/s', rate, 'Sent over all NVLinks'],
  ['power_milliwatts', 'Power', 'W', (value) => whole(value / 1000), 'Power draw of the board'],
  ['temperature_celsius', 'Temp', '°C', whole, 'Core temperature'],
  ['clock_sm_mhz', 'Clock', 'MHz', whole, 'Clock of the multiprocessors'],
];
const HEADINGS = [
  ['GPU', '', 'Index on its node', 'index'],
  ['Product', '', 'Product name', 'product'],
  ['Utilisation', '%', 'Share of time in which at least one kernel ran; read it beside SM', 'load'],
  ['Last 60', '', 'Utilisation, the last 60 points', 'past'],
  ['Memory', 'GiB', 'Device memory in use and in total', 'memory'],
  ...NUMBERS.map(([, label, unit, , help]) => [label, unit, help, 'number']),
];
const HEALTH_MARKS = { healthy: '●', unhealthy: '▲', stopped: '■', unseen: '○' };
const SEVERITY_MARKS = { info: '·', warning: '▲', error: '✖' };
/// After these a node may stand elsewhere than the last snapshot said.
const NODE_EVENTS = /^(node_|agent_|gpu_lost|gpu_found)/;

// ---------------------------------------------------------------- document

const byId = (id) => document.getElementById(id);

function make(tag, className, text) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
}

function draw(tag, attributes) {
  const element = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

/// Writes only what differs: most cells of a large cluster stand still.
function write(element, text) {
  if (element.shown !== text) {
    element.shown = text;
    element.textContent = text;
  }
}

function flag(element, name, value) {
  if (element.dataset[name] !== value) element.dataset[name] = value;
}

/// Moves only what stands elsewhere: a moved element loses its focus.
function inOrder(parent, elements) {
  elements.forEach((element, position) => {
    const present = parent.children[position] ?? null;
    if (present !== element) parent.insertBefore(element, present);
  });
}

function notice(id, text) {
  const element = byId(id);
  element.hidden = !text;
  write(element, text ?? '');
}

// ---------------------------------------------------------------- spelling

const spell = (value, how) => (value === null ? ABSENT : how(value));
const percent = (value) => spell(value, (v) => `${v.toFixed(0)} %`);
const count = (number, one, many = `${one}s`) => `${number.toLocaleString('en')} ${number === 1 ? one : many}`;

function sizes(used, total) {
  if (used === null && total === null) return ABSENT;
  const digits = (total ?? used) / GIB >= 1000 ? 0 : 1;
  const spelt = (value) => spell(value, (v) => (v / GIB).toFixed(digits));
  return `${spelt(used)} / ${spelt(total)}`;
}

const pad = (number) => String(number).padStart(2, '0');

function clock(date) {
  return `${pad(date.getHours())}:${pad(date.getMinutes())}:${pad(date.getSeconds())}`;
}

/// Local time, with the day when it is not today.
function moment(text) {
  const date = new Date(text);
  if (Number.isNaN(date.getTime())) return text;
  if (date.toDateString() === new Date().toDateString()) return clock(date);
  return `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())} ${clock(date)}`;
}

function span(from, until) {
  const seconds = Math.round((Date.parse(until) - Date.parse(from)) / 1000);
  if (!Number.isFinite(seconds)) return ABSENT;
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
  return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
}

// ---------------------------------------------------------------- nodes

const nodes = new Map();
const dirty = new Set();
const collator = new Intl.Collator('en', { numeric: true });
let totalsDirty = false;
let eventsDirty = false;
let paintAsked = false;
let paintedAt = -Infinity;

const watcher = new IntersectionObserver(
  (entries) => {
    for (const entry of entries) {
      const node = entry.target.node;
      node.visible = entry.isIntersecting;
      if (node.visible) touch(node);
    }
  },
  { rootMargin: '300px' },
);

/// Many messages, one painting: at most five a second, and only of what is in view.
function askPaint() {
  if (paintAsked) return;
  paintAsked = true;
  const wait = Math.max(0, paintedAt + PAINT_MS_MIN - performance.now());
  setTimeout(() => requestAnimationFrame(paint), wait);
}

function touch(node) {
  dirty.add(node);
  totalsDirty = true;
  askPaint();
}

function paint(now) {
  paintAsked = false;
  paintedAt = now;
  for (const node of dirty) {
    if (node.visible) {
      dirty.delete(node);
      paintNode(node);
    }
  }
  if (totalsDirty) {
    totalsDirty = false;
    paintTotals();
  }
  if (eventsDirty) {
    eventsDirty = false;
    paintEvents();
  }
}

function takeSnapshot(listed) {
  const gone = new Set(nodes.keys());
  let grown = false;
  for (const entry of listed) {
    gone.delete(entry.node);
    let node = nodes.get(entry.node);
    if (!node) {
      node = { name: entry.node, table: null, gpus: [], visible: false, cells: [] };
      buildNode(node);
      nodes.set(node.name, node);
      grown = true;
    }
    node.simulated = entry.simulated;
    node.health = entry.health;
    node.heardAt = performance.now();
    if (node.table !== entry.table) takeTable(node, entry);
    takeCells(node, entry.time, entry.cells);
  }
  for (const name of gone) dropNode(nodes.get(name));
  if (grown) placeNodes();
  byId('waiting').hidden = true;
  byId('empty').hidden = nodes.size > 0;
  byId('legend').hidden = nodes.size === 0;
  totalsDirty = true;
  askPaint();
}

function takeTable(node, entry) {
  const places = entry.devices.map(() => new Map());
  entry.columns.forEach(([device, metric], column) => places[device]?.set(metric, column));
  const known = new Map(node.gpus.map((gpu) => [gpu.id, gpu]));
  node.table = entry.table;
  node.places = new Map();
  node.gpus = [];
  entry.devices.forEach(([id, scope, index, name], position) => {
    if (scope === 'node') node.places = places[position];
    if (scope !== 'gpu') return;
    const gpu = known.get(id) ?? { id, history: [], pointAt: -Infinity, sum: 0, samples: 0 };
    node.gpus.push(Object.assign(gpu, { index, name, places: places[position] }));
  });
  node.gpus.sort((a, b) => a.index - b.index);
  buildRows(node);
}

function takeValues(message) {
  const node = nodes.get(message.node);
  // Another table: the host sends a snapshot of its own accord.
  if (!node || node.table !== message.table) return;
  node.health = 'healthy';
  node.heardAt = performance.now();
  takeCells(node, message.time, message.cells);
}

function takeCells(node, time, cells) {
  const fresh = time !== null && time !== node.time;
  node.time = time;
  node.cells = cells;
  if (fresh) {
    const at = Date.parse(time);
    for (const gpu of node.gpus) remember(gpu, at, read(node, gpu.places, 'gpu_utilization'));
  }
  touch(node);
}

/// One point a second at most: the mean of what came since the last one.
function remember(gpu, at, value) {
  if (value !== null) {
    gpu.sum += value;
    gpu.samples += 1;
  }
  // A tolerance, or a period of one second would lose every other point to jitter. A clock that
  // was set back starts anew.
  if (Math.abs(at - gpu.pointAt) < HISTORY_STEP_MS * 0.9) return;
  if (at - gpu.pointAt > SILENT_MS_MAX && gpu.history.length > 0) gpu.history.push(null);
  gpu.history.push(gpu.samples > 0 ? gpu.sum / gpu.samples : null);
  if (gpu.history.length > HISTORY_POINTS) gpu.history.splice(0, gpu.history.length - HISTORY_POINTS);
  gpu.pointAt = at;
  gpu.sum = 0;
  gpu.samples = 0;
}

function read(node, places, metric) {
  const column = places.get(metric);
  return column === undefined ? null : (node.cells[column] ?? null);
}

/// Runs each second: silence is not a message.
function checkSilence() {
  for (const node of nodes.values()) {
    if (node.health !== 'healthy' || performance.now() - node.heardAt <= SILENT_MS_MAX) continue;
    node.health = 'unhealthy';
    touch(node);
  }
}

// ---------------------------------------------------------------- nodes: elements

function buildNode(node) {
  const section = make('section', 'node');
  const line = make('div', 'node-line');
  const view = {
    section,
    name: make('h3', '', node.name),
    health: make('span', 'health'),
    simulated: make('span', 'tag', 'simulated'),
    facts: make('span', 'facts muted'),
    body: make('tbody'),
  };
  line.append(view.name, view.health, view.simulated, view.facts);
  const table = make('table', 'gpus');
  table.setAttribute('role', 'table');
  table.setAttribute('aria-label', `GPUs of ${node.name}`);
  const head = make('thead', 'unseen');
  head.setAttribute('role', 'rowgroup');
  head.append(buildHeadings('th'));
  view.body.setAttribute('role', 'rowgroup');
  table.append(buildColumns(), head, view.body);
  view.table = table;
  section.append(line, table);
  section.node = node;
  node.view = view;
  node.places = new Map();
  watcher.observe(section);
}

function buildColumns() {
  const group = make('colgroup');
  for (const [, , , className] of HEADINGS) group.append(make('col', `col-${className}`));
  return group;
}

function buildHeadings(tag) {
  const row = make('tr');
  row.setAttribute('role', 'row');
  for (const [label, unit, help, className] of HEADINGS) {
    const cell = make(tag, className);
    cell.title = help;
    if (tag === 'th') {
      cell.scope = 'col';
      cell.setAttribute('role', 'columnheader');
    }
    cell.append(make('span', '', label));
    if (unit) cell.append(' ', make('span', 'unit', unit));
    row.append(cell);
  }
  return row;
}

/// The headings that stay in view; each table has its own for screen readers.
function buildLegend() {
  const table = make('table', 'gpus');
  const body = make('tbody');
  body.append(buildHeadings('td'));
  table.append(buildColumns(), body);
  byId('legend').append(table);
}

function placeNodes() {
  const sorted = [...nodes.values()].sort((a, b) => collator.compare(a.name, b.name));
  inOrder(byId('list'), sorted.map((node) => node.view.section));
}

function dropNode(node) {
  watcher.unobserve(node.view.section);
  node.view.section.remove();
  dirty.delete(node);
  nodes.delete(node.name);
}

function buildRows(node) {
  for (const gpu of node.gpus) if (!gpu.view) buildRow(gpu);
  node.view.body.replaceChildren(...node.gpus.map((gpu) => gpu.view.row));
  node.view.table.hidden = node.gpus.length === 0;
  // Keeps the scroll bar still while sections outside the view are not laid out.
  node.view.section.style.containIntrinsicSize = `auto ${25 + node.gpus.length * 27}px`;
}

function buildRow(gpu) {
  const row = make('tr');
  row.setAttribute('role', 'row');
  const cell = (tag, className, label, unit) => {
    const element = make(tag, className);
    element.setAttribute('role', tag === 'th' ? 'rowheader' : 'cell');
    if (label) element.dataset.label = label;
    if (unit) element.dataset.unit = unit;
    row.append(element);
    return element;
  };
  const view = { row, numbers: [] };
  view.index = cell('th', 'index');
  view.index.scope = 'row';
  view.product = cell('td', 'product');
  view.load = buildBar(cell('td', 'load', 'Util'));
  view.past = buildPast(cell('td', 'past'));
  view.memory = buildBar(cell('td', 'memory', 'Mem'));
  for (const [, label, unit] of NUMBERS) view.numbers.push(cell('td', 'number', label, unit));
  gpu.view = view;
}

function buildBar(cell) {
  const box = make('div', 'gauge');
  const track = make('span', 'track');
  const fill = make('span', 'fill');
  const text = make('span', 'value');
  track.append(fill);
  box.append(track, text);
  cell.append(box);
  return { fill, text };
}

function buildPast(cell) {
  const picture = draw('svg', {
    viewBox: `0 0 ${HISTORY_POINTS - 1} 100`,
    preserveAspectRatio: 'none',
    'aria-hidden': 'true',
    focusable: 'false',
  });
  const path = draw('path', { 'vector-effect': 'non-scaling-stroke' });
  picture.append(path);
  cell.append(picture);
  return path;
}

// ---------------------------------------------------------------- nodes: painting

function paintNode(node) {
  const { view } = node;
  flag(view.section, 'health', node.health);
  write(view.health, `${HEALTH_MARKS[node.health] ?? '○'} ${healthWords(node)}`);
  view.simulated.hidden = !node.simulated;
  const of = (metric) => read(node, node.places, metric);
  const used = of('node_memory_used_bytes');
  const total = of('node_memory_total_bytes');
  const memory = used === null && total === null
    ? percent(of('node_memory_used_percent'))
    : `${sizes(used, total)} GiB`;
  const load = spell(of('node_load_1m'), plain(1));
  write(view.facts, `CPU ${percent(of('node_cpu_utilization'))}  ·  RAM ${memory}  ·  load ${load}`);
  for (const gpu of node.gpus) paintRow(node, gpu);
}

function healthWords(node) {
  if (node.health === 'healthy') return 'healthy';
  return node.time ? `${node.health}, last values ${moment(node.time)}` : node.health;
}

function paintRow(node, gpu) {
  const { view } = gpu;
  const of = (metric) => read(node, gpu.places, metric);
  const silent = of('unresponsive') === 1;
  write(view.index, String(gpu.index));
  write(view.product, silent ? `no answer: ${gpu.name}` : gpu.name);
  flag(view.product, 'warn', String(silent));
  if (view.product.title !== `${gpu.name}\n${gpu.id}`) view.product.title = `${gpu.name}\n${gpu.id}`;

  const load = of('gpu_utilization');
  paintBar(view.load, load, percent(load));
  const used = of('memory_used_bytes');
  const total = of('memory_total_bytes');
  const bytes = used !== null || total !== null;
  const share = bytes ? (used !== null && total ? (100 * used) / total : null) : of('memory_used_percent');
  paintBar(view.memory, share, bytes ? sizes(used, total) : percent(share));
  flag(view.memory.text, 'bytes', String(bytes));
  paintPast(view.past, gpu.history);

  NUMBERS.forEach(([metric, , , how, help], position) => {
    const cell = view.numbers[position];
    const value = of(metric);
    write(cell, spell(value, how));
    flag(cell, 'absent', String(value === null));
    if (metric !== 'sm_activity') return;
    const hollow = load !== null && value !== null && load >= 90 && value < 5;
    flag(cell, 'warn', String(hollow));
    const title = hollow ? 'Busy, yet almost no multiprocessor has work: copies, a tiny kernel or a hang' : help;
    if (cell.title !== title) cell.title = title;
  });
}

function paintBar(bar, share, text) {
  write(bar.text, text);
  const scale = share === null ? 0 : Math.min(1, Math.max(0, share / 100));
  const transform = `scaleX(${scale.toFixed(3)})`;
  if (bar.shown !== transform) {
    bar.shown = transform;
    bar.fill.style.transform = transform;
  }
}

/// The newest point stands at the right edge; an absent one breaks the line.
function paintPast(path, history) {
  let shape = '';
  let pen = 'M';
  history.forEach((value, position) => {
    if (value === null) {
      pen = 'M';
      return;
    }
    const x = HISTORY_POINTS - history.length + position;
    const y = 100 - Math.min(100, Math.max(0, value));
    shape += `${pen}${x} ${y.toFixed(0)}`;
    // A lone point after a gap still shows: round caps draw a line of no length.
    if (pen === 'M') shape += 'h0';
    pen = 'L';
  });
  if (path.shown !== shape) {
    path.shown = shape;
    path.setAttribute('d', shape);
  }
}

// ---------------------------------------------------------------- totals

const totals = new Map();

function buildTotals() {
  for (const [key, label] of [
    ['nodes', 'Nodes healthy'],
    ['gpus', 'GPUs'],
    ['load', 'Average utilisation'],
    ['memory', 'Device memory'],
    ['power', 'GPU power'],
  ]) {
    const box = make('div', 'total');
    const value = make('dd', 'big', ABSENT);
    const detail = make('dd', 'muted small');
    box.append(make('dt', 'muted', label), value, detail);
    byId('totals').append(box);
    totals.set(key, { value, detail });
  }
}

/// A sum over those that have the value; null when none has.
class Sum {
  total = 0;
  count = 0;

  add(value) {
    if (value === null) return;
    this.total += value;
    this.count += 1;
  }

  get sum() {
    return this.count ? this.total : null;
  }

  get mean() {
    return this.count ? this.total / this.count : null;
  }
}

/// Old values of silent nodes are no part of what the cluster does now.
function paintTotals() {
  let healthy = 0;
  let gpus = 0;
  let reporting = 0;
  const sums = {
    gpu_utilization: new Sum(),
    sm_activity: new Sum(),
    tensor_activity: new Sum(),
    memory_used_bytes: new Sum(),
    memory_total_bytes: new Sum(),
    power_milliwatts: new Sum(),
    power_limit_milliwatts: new Sum(),
  };
  const metrics = Object.entries(sums);
  for (const node of nodes.values()) {
    gpus += node.gpus.length;
    if (node.health !== 'healthy') continue;
    healthy += 1;
    reporting += node.gpus.length;
    for (const gpu of node.gpus) for (const [metric, sum] of metrics) sum.add(read(node, gpu.places, metric));
  }
  const show = (key, value, detail) => {
    write(totals.get(key).value, value);
    write(totals.get(key).detail, detail);
  };
  const away = nodes.size - healthy;
  show('nodes', `${healthy} / ${nodes.size}`, away ? `${away} not healthy` : '');
  flag(totals.get('nodes').detail, 'warn', String(away > 0));
  show('gpus', gpus.toLocaleString('en'), gpus > reporting ? `${gpus - reporting} not reporting` : '');
  show(
    'load',
    percent(sums.gpu_utilization.mean),
    `SM ${percent(sums.sm_activity.mean)} · tensor ${percent(sums.tensor_activity.mean)}`,
  );
  const used = sums.memory_used_bytes.sum;
  const total = sums.memory_total_bytes.sum;
  const unit = total !== null && total >= 10_000 * GIB ? ['TiB', 1024 * GIB] : ['GiB', GIB];
  const size = (value) => spell(value, (v) => (v / unit[1]).toFixed(unit[0] === 'TiB' ? 1 : 0));
  show(
    'memory',
    used === null && total === null ? ABSENT : `${size(used)} / ${size(total)} ${unit[0]}`,
    used !== null && total ? `${percent((100 * used) / total)} in use` : '',
  );
  const limit = sums.power_limit_milliwatts.sum;
  show('power', watts(sums.power_milliwatts.sum), limit === null ? '' : `limit ${watts(limit)}`);
}

function watts(milliwatts) {
  return spell(milliwatts, (value) => {
    const power = value / 1000;
    return power >= 10_000 ? `${(power / 1000).toFixed(1)} kW` : `${power.toFixed(0)} W`;
  });
}

// ---------------------------------------------------------------- connection

let socket = null;
let attempt = 0;
let heardAt = null;
let askedAt = null;
let skipped = 0;
let subscribeTimer = null;
let retryTimer = null;

function connect() {
  clearTimeout(retryTimer);
  const scheme = location.protocol === 'https:' ? 'wss' : 'ws';
  const opened = new WebSocket(`${scheme}://${location.host}/api/v1/live`);
  socket = opened;
  askedAt = performance.now();
  opened.onmessage = ({ data }) => {
    if (socket === opened) hear(JSON.parse(data));
  };
  opened.onclose = () => {
    if (socket === opened) lose();
  };
}

/// A socket does not say why it was refused; a question does.
async function askWhoWeAre() {
  try {
    const answer = await fetch('/api/v1/whoami');
    byId('login').hidden = answer.status !== 401;
    byId('waiting').hidden = answer.status === 401 || byId('waiting').hidden;
  } catch {
    // The host is away: the connection says so.
  }
}

async function logIn(submitted) {
  submitted.preventDefault();
  const field = byId('login-token');
  const notice = byId('login-notice');
  notice.hidden = true;
  try {
    const answer = await fetch('/api/v1/login', {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ token: field.value.trim() }),
    });
    const body = await answer.json();
    if (!answer.ok) throw new Error(body.error.message);
    field.value = '';
    byId('login').hidden = true;
    attempt = 0;
    connect();
  } catch (failure) {
    write(notice, failure.message);
    notice.hidden = false;
    field.focus();
  }
}

function lose() {
  askWhoWeAre();
  socket?.close();
  socket = null;
  askedAt = null;
  clearTimeout(subscribeTimer);
  subscribeTimer = null;
  const wait = BACKOFF_MS[Math.min(attempt, BACKOFF_MS.length - 1)];
  attempt += 1;
  retryTimer = setTimeout(connect, wait);
  flag(document.body, 'stale', 'true');
  showConnection();
}

function hear(message) {
  heardAt = new Date();
  askedAt = null;
  switch (message.type) {
    case 'hello':
      greet(message);
      break;
    case 'snapshot':
      takeSnapshot(message.nodes);
      break;
    case 'values':
      takeValues(message);
      break;
    case 'event':
      takeEvents([message]);
      if (NODE_EVENTS.test(message.kind)) subscribeSoon();
      if (message.kind.startsWith('session_')) loadSessions();
      break;
    case 'lagged':
      skipped += message.dropped;
      showConnection();
      break;
    default:
      break;
  }
}

function greet({ version, simulated, insecure }) {
  attempt = 0;
  write(byId('version'), `v${version}`);
  byId('simulated').hidden = !simulated;
  byId('insecure').hidden = !insecure;
  document.title = simulated ? 'gswarm (simulated)' : 'gswarm';
  flag(document.body, 'stale', 'false');
  showConnection();
  loadEvents();
  loadSessions();
}

/// A snapshot is large: events that come together ask for one.
function subscribeSoon() {
  subscribeTimer ??= setTimeout(() => {
    subscribeTimer = null;
    subscribe();
  }, RESUBSCRIBE_MS);
}

function subscribe() {
  if (socket?.readyState !== WebSocket.OPEN) return;
  socket.send(JSON.stringify({ type: 'subscribe' }));
  askedAt ??= performance.now();
}

function checkSocket() {
  if (socket === null) return;
  if (askedAt !== null) {
    if (performance.now() - askedAt > ANSWER_MS_MAX) lose();
  } else if (heardAt !== null && Date.now() - heardAt.getTime() > QUIET_MS_MAX) subscribe();
}

function isLive() {
  return document.body.dataset.stale === 'false';
}

function showConnection() {
  const element = byId('connection');
  const state = isLive() ? 'live' : attempt === 0 ? 'connecting' : 'reconnecting';
  flag(element, 'state', state);
  const missed = skipped ? `, ${count(skipped, 'message')} skipped` : '';
  const words = {
    live: `● live${missed}`,
    connecting: '○ connecting',
    reconnecting: `▲ reconnecting, last seen ${heardAt ? clock(heardAt) : 'never'}`,
  };
  write(element, words[state]);
}

// ---------------------------------------------------------------- requests

/// The body, or an error whose message is the host's own sentence.
async function request(path, body) {
  const options = body === undefined
    ? {}
    : { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) };
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    throw new Error('the host does not answer');
  }
  const answer = await response.json().catch(() => null);
  if (!response.ok) throw new Error(answer?.error?.message ?? `the host answered ${response.status}`);
  if (answer === null) throw new Error('the answer of the host is not JSON');
  return answer;
}

// ---------------------------------------------------------------- sessions

const sessionRows = new Map();
let sessionsBusy = false;
let sessionsAgain = false;

async function loadSessions() {
  if (sessionsBusy) {
    sessionsAgain = true;
    return;
  }
  sessionsBusy = true;
  try {
    const { sessions } = await request('/api/v1/sessions');
    showSessions(sessions);
    notice('sessions-failure', null);
  } catch (error) {
    // While there is no connection, the header says so.
    notice('sessions-failure', isLive() ? error.message : null);
  }
  sessionsBusy = false;
  if (sessionsAgain) {
    sessionsAgain = false;
    loadSessions();
  }
}

/// Newest first; active ones before all others, so that none is cut off.
function showSessions(sessions) {
  const sorted = sessions.toReversed().sort((a, b) => Number(b.active) - Number(a.active));
  const shown = sorted.slice(0, SESSIONS_SHOWN_MAX);
  const gone = new Set(sessionRows.keys());
  for (const session of shown) {
    gone.delete(session.id);
    let row = sessionRows.get(session.id);
    if (!row) {
      row = buildSession(session.id);
      sessionRows.set(session.id, row);
    }
    showSession(row, session);
  }
  for (const id of gone) {
    sessionRows.get(id).item.remove();
    sessionRows.delete(id);
  }
  inOrder(byId('session-list'), shown.map((session) => sessionRows.get(session.id).item));
  const rest = byId('sessions-rest');
  rest.hidden = sorted.length > 0 && sorted.length === shown.length;
  write(rest, sorted.length === 0 ? 'No session yet.' : `and ${sorted.length - shown.length} older`);
}

function buildSession(id) {
  const row = {
    item: make('li', 'session'),
    name: make('span', 'title'),
    state: make('span', 'state'),
    simulated: make('span', 'tag', 'simulated'),
    detail: make('p', 'detail muted small'),
    stop: make('button', '', 'Stop'),
    download: make('a', 'button', 'JSON'),
  };
  const head = make('div', 'session-head');
  head.append(row.name, row.simulated, row.state);
  const actions = make('div', 'actions');
  actions.append(row.stop, row.download);
  row.stop.type = 'button';
  row.stop.addEventListener('click', () => stopSession(row, id));
  row.download.href = `/api/v1/sessions/${encodeURIComponent(id)}/export?format=json`;
  row.download.setAttribute('download', '');
  row.item.append(head, actions, row.detail);
  return row;
}

function showSession(row, session) {
  write(row.name, session.name);
  row.name.title = session.name;
  flag(row.item, 'active', String(session.active));
  write(row.state, session.active ? '● recording' : '');
  row.simulated.hidden = !session.simulated;
  row.stop.hidden = !session.active;
  row.stop.setAttribute('aria-label', `Stop session ${session.name}`);
  row.download.setAttribute('aria-label', `Download session ${session.name} as JSON`);
  const window = session.until === null
    ? `since ${moment(session.from)}`
    : `${moment(session.from)}, ${span(session.from, session.until)}`;
  const late = session.incomplete_nodes.length;
  write(row.detail, [
    window,
    count(session.frame_count, 'frame'),
    ...(late ? [`waiting for ${count(late, 'node')}`] : []),
  ].join(' · '));
  row.detail.title = session.until === null ? session.from : `${session.from} to ${session.until}`;
}

async function stopSession(row, id) {
  row.stop.disabled = true;
  try {
    const { export_note: remark } = await request(`/api/v1/sessions/${encodeURIComponent(id)}/stop`, {});
    notice('sessions-notice', remark);
  } catch (error) {
    notice('sessions-notice', error.message);
  }
  row.stop.disabled = false;
  loadSessions();
}

async function startSession(event) {
  event.preventDefault();
  const field = byId('session-name');
  const button = event.target.querySelector('button');
  const name = field.value.trim();
  button.disabled = true;
  try {
    await request('/api/v1/sessions', name ? { name } : {});
    field.value = '';
    notice('sessions-notice', null);
  } catch (error) {
    notice('sessions-notice', error.message);
  }
  button.disabled = false;
  loadSessions();
}

// ---------------------------------------------------------------- events

let events = [];
const eventKey = (event) => JSON.stringify([event.time, event.node, event.kind, event.message]);

async function loadEvents() {
  try {
    const listed = await request('/api/v1/events');
    takeEvents(listed.events);
    notice('events-failure', null);
  } catch (error) {
    notice('events-failure', error.message);
  }
}

/// What the list and the socket both say counts once.
function takeEvents(more) {
  const known = new Map(events.map((event) => [eventKey(event), event]));
  for (const event of more.slice(-EVENTS_SHOWN_MAX)) known.set(eventKey(event), event);
  events = [...known.values()]
    .sort((a, b) => (a.time < b.time ? 1 : a.time > b.time ? -1 : 0))
    .slice(0, EVENTS_SHOWN_MAX);
  eventsDirty = true;
  askPaint();
}

function paintEvents() {
  const items = events.length ? events.map(buildEvent) : [make('li', 'muted small', 'No event yet.')];
  byId('event-list').replaceChildren(...items);
}

function buildEvent(event) {
  const item = make('li', 'event');
  flag(item, 'severity', event.severity);
  const mark = make('span', 'mark', SEVERITY_MARKS[event.severity] ?? '·');
  mark.setAttribute('aria-hidden', 'true');
  const time = make('time', 'muted small', moment(event.time));
  time.dateTime = event.time;
  time.title = event.time;
  const text = make('span', 'event-text');
  if (event.severity !== 'info') text.append(make('span', 'unseen', `${event.severity}: `));
  if (event.node !== null) text.append(make('strong', '', event.node), ' ');
  text.append(event.message);
  item.title = event.kind;
  item.append(mark, time, text);
  return item;
}

// ---------------------------------------------------------------- start

function begin() {
  const host = location.hostname;
  // Agents connect to any port of the host, so to the one that served this page.
  const port = location.port || (location.protocol === 'https:' ? 443 : 80);
  byId('login-form').addEventListener('submit', logIn);
  write(byId('command'), `gswarm client connect ${host}:${port}`);
  write(byId('elsewhere'), `On another machine, write the address of this host instead of ${host}.`);
  byId('elsewhere').hidden = !/^(localhost|127\.|\[::1\])/.test(host);
  buildLegend();
  buildTotals();
  byId('start').addEventListener('submit', startSession);
  setInterval(() => {
    checkSocket();
    if (isLive()) checkSilence();
  }, 1000);
  setInterval(() => {
    if (isLive() && !document.hidden) loadSessions();
  }, SESSIONS_MS);
  document.addEventListener('visibilitychange', () => {
    if (!document.hidden && isLive()) loadSessions();
  });
  window.addEventListener('online', () => {
    if (socket === null) connect();
  });
  connect();
}

begin();
