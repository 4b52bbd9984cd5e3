// A node program for a VM: speaks the plain protocol of docs/bindings.md, as any language can that has unix sockets.
const net = require("net");

function connect() {
  const socket = net.connect("/run/callgate/host.sock");
  const waiting = new Map();
  let data = Buffer.alloc(0), last = 0;
  socket.on("data", (chunk) => {
    data = Buffer.concat([data, chunk]);
    while (data.length >= 4 && data.length >= 4 + data.readUInt32BE(0)) {
      const end = 4 + data.readUInt32BE(0);
      const reply = JSON.parse(data.subarray(4, end).toString());
      data = data.subarray(end);
      const call = waiting.get(reply.id);
      if ("item" in reply) { call.items.push(reply.item); continue; }
      waiting.delete(reply.id);
      if (!reply.ok) call.reject(Object.assign(new Error(reply.error.message), { code: reply.error.code }));
      else call.resolve(reply.done ? call.items : reply.result);
    }
  });
  const call = (name, args = {}) => new Promise((resolve, reject) => {
    const id = ++last, body = Buffer.from(JSON.stringify({ id, kind: "call", name, arguments: args })), head = Buffer.alloc(4);
    head.writeUInt32BE(body.length);
    waiting.set(id, { resolve, reject, items: [] });
    socket.write(Buffer.concat([head, body]));
  });
  return { call, close: () => socket.end() };
}

(async () => {
  const host = connect();
  // Several calls may be under way on one connection; each reply carries the id of its call.
  const prices = await Promise.all(["nut", "bolt", "washer"].map((item) => host.call("shop:price", { item })));
  console.log("prices:", prices.join(" "));
  console.log("the catalogue:", (await host.call("shop:catalogue")).join(" "));
  await host.call("shop:set_price", { item: "nut", cents: 0 }).catch((error) => console.log(error.code, "-", error.message));
  host.close();
})();
