/* The extension module by which a CPython built for WASI calls host functions: `exchange(channel, message)`, see callgate_guest.py.
 *
 * Not a part of callgate's own build: it is compiled for wasm32 and linked into the interpreter (docs/bindings.md says how).
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#ifdef __wasm__

#define ROOM 8192
#define HANG_UP (-1)

__attribute__((import_module("callgate"), import_name("exchange")))
int callgate_exchange(int channel, const void *message, int message_bytes, void *reply, int reply_room);

static PyObject *failed(int answer) {
    errno = -answer; /* WASI's numbers, which are the C library's here */
    return PyErr_SetFromErrno(PyExc_OSError);
}

static PyObject *exchange(PyObject *Py_UNUSED(self), PyObject *arguments) {
    int channel;
    Py_buffer message;
    if (!PyArg_ParseTuple(arguments, "iz*", &channel, &message)) return NULL;
    if (!message.buf) {
        const int answer = callgate_exchange(channel, NULL, HANG_UP, NULL, 0);
        return answer < 0 ? failed(answer) : PyBytes_FromStringAndSize(NULL, 0);
    }
    if (message.len > INT_MAX) {
        PyBuffer_Release(&message);
        return failed(-EMSGSIZE);
    }
    char room[ROOM];
    int length = callgate_exchange(channel, message.buf, (int)message.len, room, ROOM);
    PyBuffer_Release(&message);
    if (length < 0) return failed(length);
    if (length <= ROOM) return PyBytes_FromStringAndSize(room, length);
    PyObject *reply = PyBytes_FromStringAndSize(NULL, length); /* it stays with the host until there is room */
    if (!reply) return NULL;
    length = callgate_exchange(channel, NULL, 0, PyBytes_AS_STRING(reply), length);
    if (length >= 0) return reply;
    Py_DECREF(reply);
    return failed(length);
}

static PyMethodDef methods[] = {{"exchange", exchange, METH_VARARGS, "Send a message to the host and wait for one reply."}, {0}};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, .m_name = "_callgate", .m_methods = methods};

PyMODINIT_FUNC PyInit__callgate(void) { return PyModule_Create(&module); }

#endif
