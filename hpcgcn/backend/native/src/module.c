/* The Python module: hands out the operations of one instruction set level as functions that release the GIL. */
#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <string.h>

#include "call.h"

typedef struct {
    const char *name;
    const operation *operations;
} level;

static bool cpu_runs(const char *name)
{
    if (strcmp(name, "plain") == 0)
        return true;
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (strcmp(name, "avx2") == 0)
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (strcmp(name, "avx512") == 0)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")
            && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")
            && __builtin_cpu_supports("fma");
#endif
    return false;
}

static const level levels[] = {
#if defined(__x86_64__)
    {"avx512", hpcgcn_operations_avx512},
    {"avx2", hpcgcn_operations_avx2},
#endif
    {"plain", hpcgcn_operations_plain},
};
enum { N_LEVELS = sizeof levels / sizeof levels[0] };

/* -- arguments --------------------------------------------------------------------------------------------------- */

static int item_size(char letter)
{
    switch (letter | 0x20) {
    case 'f': case 'j': return 4;
    case 'l': return 8;
    case 'b': return 1;
    default: return 0;
    }
}

static bool take_array(PyObject *object, const operation *op, int position, Py_buffer *view, argument *argument)
{
    char letter = op->signature[position];
    bool writable = !(letter & 0x20);
    if (object == Py_None)
        return true;
    if (PyObject_GetBuffer(object, view, writable ? PyBUF_WRITABLE : PyBUF_SIMPLE) < 0)
        return false;
    if (item_size(letter) && view->itemsize != item_size(letter)) {
        PyErr_Format(PyExc_TypeError, "%s: argument %d must have items of %d bytes, not %zd", op->name, position,
                     item_size(letter), view->itemsize);
        return false;
    }
    argument->data = view->buf;
    argument->bytes = view->len;
    return true;
}

static bool take_argument(PyObject *object, const operation *op, int position, Py_buffer *view, argument *argument)
{
    switch (op->signature[position]) {
    case 'i':
        argument->integer = PyLong_AsLongLong(object);
        return !PyErr_Occurred();
    case 'd':
        argument->number = PyFloat_AsDouble(object);
        return !PyErr_Occurred();
    default:
        return take_array(object, op, position, view, argument);
    }
}

static PyObject *run_operation(PyObject *self, PyObject *const *arguments, Py_ssize_t n_arguments)
{
    const operation *op = PyCapsule_GetPointer(self, "hpcgcn.operation");
    if (op == NULL)
        return NULL;
    int n_expected = (int)strcspn(op->signature, "=");
    if (n_arguments != n_expected)
        return PyErr_Format(PyExc_TypeError, "%s takes %d arguments, not %zd", op->name, n_expected, n_arguments);
    call call = {0};
    Py_buffer views[MAX_ARGUMENTS];
    int taken = 0;
    bool good = true;
    for (; good && taken < n_expected; taken++) {
        views[taken].obj = NULL;
        good = take_argument(arguments[taken], op, taken, &views[taken], &call.in[taken]);
    }
    if (good) {
        Py_BEGIN_ALLOW_THREADS
        op->run(&call);
        Py_END_ALLOW_THREADS
    }
    for (int i = 0; i < taken; i++)
        if (views[i].obj != NULL)
            PyBuffer_Release(&views[i]);
    if (!good)
        return NULL;
    if (call.error != NULL)
        return PyErr_Format(PyExc_ValueError, "%s: %s", op->name, call.error);
    if (op->signature[n_expected] == '=')
        return PyFloat_FromDouble(call.result);
    Py_RETURN_NONE;
}

/* -- the module -------------------------------------------------------------------------------------------------- */

static PyMethodDef run_method = {"operation", (PyCFunction)(void (*)(void))run_operation, METH_FASTCALL, NULL};

static bool add_operation(PyObject *table, const operation *op)
{
    PyObject *capsule = PyCapsule_New((void *)op, "hpcgcn.operation", NULL);
    PyObject *function = capsule ? PyCFunction_NewEx(&run_method, capsule, NULL) : NULL;
    bool good = function && PyDict_SetItemString(table, op->name, function) == 0;
    Py_XDECREF(capsule);
    Py_XDECREF(function);
    return good;
}

static PyObject *module_operations(PyObject *self, PyObject *name)
{
    (void)self;
    for (int i = 0; i < N_LEVELS; i++) {
        if (PyUnicode_CompareWithASCIIString(name, levels[i].name) != 0 || !cpu_runs(levels[i].name))
            continue;
        PyObject *table = PyDict_New();
        for (const operation *op = levels[i].operations; table && op->name; op++)
            if (!add_operation(table, op))
                Py_CLEAR(table);
        return table;
    }
    return PyErr_Format(PyExc_ValueError, "no kernels for level %R here", name);
}

static PyObject *module_levels(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    PyObject *names = PyList_New(0);
    for (int i = 0; names && i < N_LEVELS; i++) {
        PyObject *name = cpu_runs(levels[i].name) ? PyUnicode_FromString(levels[i].name) : NULL;
        if (name && PyList_Append(names, name) < 0)
            Py_CLEAR(names);
        Py_XDECREF(name);
    }
    return names;
}

static PyMethodDef module_methods[] = {
    {"operations", module_operations, METH_O, "The operations of a level: name -> function."},
    {"levels", module_levels, METH_NOARGS, "The levels that this CPU runs, best first."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, .m_name = "_kernels", .m_size = -1, .m_methods = module_methods,
};

PyMODINIT_FUNC PyInit__kernels(void)
{
    return PyModule_Create(&module);
}
