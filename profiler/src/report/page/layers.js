// Layout of an acyclic graph in layers: longest path, order by barycentres, then places that keep neighbours
// near and edges straight. It takes a few passes over the edges.

// nodes: [{w, h}], edges: [[from, to]] → {x, y} of each node, points of each edge, and the size.
// `across` is the direction in which layers spread: "x" for layers below each other.
function layout(nodes, edges, options) {
  const parts = componentsOf(nodes.length, edges);
  if (parts.length < 2) return layoutOne(nodes, edges, options);
  const at = new Array(nodes.length), laid = { nodes: [], edges: [] };
  const boxes = parts.map((members) => {
    members.forEach((node, i) => { at[node] = i; });
    const inside = edges.map((_, e) => e).filter((e) => members[at[edges[e][0]]] === edges[e][0]);
    const own = layoutOne(members.map((node) => nodes[node]), inside.map((e) => edges[e].map((node) => at[node])), options);
    return { members, inside, own };
  });
  const size = pack(boxes.map((box) => box.own), 2.5 * options.nodeGap + 18);
  boxes.forEach(({ members, inside, own }, i) => {
    const shift = (p) => ({ x: p.x + size.places[i].x, y: p.y + size.places[i].y });
    members.forEach((node, n) => { laid.nodes[node] = shift(own.nodes[n]); });
    inside.forEach((e, n) => { laid.edges[e] = own.edges[n].map(shift); });
  });
  return { ...laid, width: size.width, height: size.height };
}

// Connected parts of the graph, the largest first.
function componentsOf(n, edges) {
  const root = Array.from({ length: n }, (_, i) => i);
  const find = (i) => {
    while (root[i] !== i) i = root[i] = root[root[i]];
    return i;
  };
  for (const [from, to] of edges) root[find(from)] = find(to);
  const parts = new Map();
  for (let i = 0; i < n; i++) {
    const key = find(i);
    if (parts.has(key)) parts.get(key).push(i); else parts.set(key, [i]);
  }
  return [...parts.values()].sort((a, b) => b.length - a.length || a[0] - b[0]);
}

// Boxes in columns from the left, none higher than the highest box or than a wide screen would be.
function pack(boxes, gap) {
  const area = boxes.reduce((sum, box) => sum + (box.width + gap) * (box.height + gap), 0);
  const most = Math.max(...boxes.map((box) => box.height), Math.sqrt(area / 2.2));
  const places = [];
  let x = 0, y = 0, wide = 0, height = 0;
  for (const box of boxes) {
    if (y > 0 && y + box.height > most) {
      x += wide + gap;
      y = wide = 0;
    }
    places.push({ x, y });
    y += box.height + gap;
    wide = Math.max(wide, box.width);
    height = Math.max(height, y - gap);
  }
  return { places, width: x + wide, height };
}

function layoutOne(nodes, edges, options) {
  const { down, layerGap, nodeGap } = options;
  const size = (node) => (down ? node.w : node.h), depth = (node) => (down ? node.h : node.w);
  const layer = layersOf(nodes.length, edges);
  // An edge over several layers gets a point in each layer between.
  const items = nodes.map((node, i) => ({ size: size(node), layer: layer[i], up: [], down: [] }));
  const chains = edges.map(([from, to]) => {
    const chain = [from];
    for (let l = layer[from] + 1; l < layer[to]; l++) chain.push(items.push({ size: 8, layer: l, up: [], down: [], dummy: true }) - 1);
    chain.push(to);
    for (let i = 1; i < chain.length; i++) {
      items[chain[i - 1]].down.push(chain[i]);
      items[chain[i]].up.push(chain[i - 1]);
    }
    return chain;
  });
  const layers = [];
  items.forEach((item, i) => (layers[item.layer] = layers[item.layer] || []).push(i));
  order(layers, items);
  place(layers, items, nodeGap);
  let at = 0;
  const middles = layers.map((list) => {
    const h = Math.max(...list.map((i) => (items[i].dummy ? 0 : depth(nodes[i]))), 0);
    const middle = at + h / 2;
    at += h + layerGap;
    return middle;
  });
  const xy = (i) => (down ? { x: items[i].at, y: middles[items[i].layer] } : { x: middles[items[i].layer], y: items[i].at });
  const extent = Math.max(...items.map((item) => item.at + item.size / 2), 0);
  return {
    nodes: nodes.map((_, i) => xy(i)), edges: chains.map((chain) => chain.map(xy)),
    width: down ? extent : at - layerGap, height: down ? at - layerGap : extent,
  };
}

// Layer of each node: its longest path from a source; sources move as near as possible to the nodes that need
// them.
function layersOf(n, edges) {
  const out = Array.from({ length: n }, () => []), into = new Array(n).fill(0), layer = new Array(n).fill(0);
  for (const [from, to] of edges) { out[from].push(to); into[to]++; }
  const isSource = into.map((d) => d === 0), queue = [];
  into.forEach((d, i) => { if (d === 0) queue.push(i); });
  const sorted = [];
  while (queue.length) {
    const i = queue.shift();
    sorted.push(i);
    for (const to of out[i]) {
      layer[to] = Math.max(layer[to], layer[i] + 1);
      if (--into[to] === 0) queue.push(to);
    }
  }
  for (const i of sorted) {
    if (isSource[i] && out[i].length) layer[i] = Math.max(0, Math.min(...out[i].map((to) => layer[to])) - 1);
  }
  return layer;
}

function order(layers, items) {
  const position = new Float64Array(items.length);
  const number = (list) => list.forEach((i, n) => { position[i] = n; });
  layers.forEach(number);
  let best = layers.map((list) => list.slice()), least = Infinity;
  for (let sweep = 0; sweep < 16; sweep++) {
    const downward = sweep % 2 === 0, sequence = downward ? layers : [...layers].reverse();
    for (const list of sequence) {
      const key = new Map(list.map((i) => {
        const near = downward ? items[i].up : items[i].down;
        return [i, near.length ? near.reduce((a, j) => a + position[j], 0) / near.length : position[i]];
      }));
      list.sort((a, b) => key.get(a) - key.get(b));
      number(list);
    }
    const crossings = layers.reduce((a, list) => a + crossed(list, items, position), 0);
    if (crossings < least) {
      least = crossings;
      best = layers.map((list) => list.slice());
    }
    if (!crossings) break;
  }
  best.forEach((list, l) => { layers[l] = list; });
}
// Pairs of edges below a layer that cross: inversions, counted with a Fenwick tree.
function crossed(list, items, position) {
  const ends = [];
  for (const i of list) ends.push(...items[i].down.map((j) => position[j]).sort((a, b) => a - b));
  const most = Math.max(0, ...ends) + 2, tree = new Int32Array(most + 1);
  let crossings = 0;
  ends.forEach((end, n) => {
    let below = 0;
    for (let k = end + 1; k > 0; k -= k & -k) below += tree[k];
    crossings += n - below;
    for (let k = end + 1; k <= most; k += k & -k) tree[k]++;
  });
  return crossings;
}

// Each node wants the mean of its neighbours; within a layer the order and the gaps stay.
function place(layers, items, gap) {
  for (const list of layers) {
    let at = 0;
    for (const i of list) {
      items[i].at = at + items[i].size / 2;
      at += items[i].size + gap;
    }
  }
  for (let sweep = 0; sweep < 24; sweep++) {
    const sequence = sweep % 2 === 0 ? layers : [...layers].reverse();
    for (const list of sequence) {
      const wish = list.map((i) => {
        const near = sweep % 2 === 0 ? items[i].up : items[i].down;
        const all = near.length ? near : [i];
        return all.reduce((a, j) => a + items[j].at, 0) / all.length;
      });
      settle(list, items, wish, gap);
    }
  }
  const least = Math.min(...items.map((item) => item.at - item.size / 2), Infinity);
  items.forEach((item) => { item.at -= least; });
}
// The nearest places to the wanted ones, in order and without overlap: pool adjacent violators.
function settle(list, items, wish, gap) {
  const offset = [0];
  for (let n = 1; n < list.length; n++) offset.push(offset[n - 1] + (items[list[n - 1]].size + items[list[n]].size) / 2 + gap);
  const pools = [];
  list.forEach((i, n) => {
    const weight = items[i].dummy ? 3 : 1; // long edges first: they are what one follows
    pools.push({ sum: (wish[n] - offset[n]) * weight, weight, first: n });
    while (pools.length > 1) {
      const b = pools[pools.length - 1], a = pools[pools.length - 2];
      if (a.sum / a.weight <= b.sum / b.weight) break;
      a.sum += b.sum;
      a.weight += b.weight;
      pools.pop();
    }
  });
  pools.forEach((pool, k) => {
    const end = k + 1 < pools.length ? pools[k + 1].first : list.length;
    for (let n = pool.first; n < end; n++) items[list[n]].at = pool.sum / pool.weight + offset[n];
  });
}
