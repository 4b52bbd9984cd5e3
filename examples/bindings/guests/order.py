"""A Python program for a VM: calls host functions by the module that lies there. Runs in a VM, not here."""

from callgate_guest import BindingError, bindings, call  # pyright: ignore[reportMissingImports]

print("what there is:", ", ".join(binding["name"] for binding in bindings()))
print("a nut costs", call("shop:price", "nut"))
print("the order:", call("shop:order", lines=[{"item": "bolt", "count": 2}, {"item": "washer", "count": 10}]))
print("in stock:", call("shop:stock", item="bolt"))
print("the catalogue:", *call("shop:catalogue"))
try:
    call("shop:price", item=5)
except BindingError as error:
    print(f"{error.code}: {error}")
try:
    call("shop:set_price", item="nut", cents=0)
except PermissionError as error:
    print(error)
