// libhiprtc.so of the simulated ROCm: programs are compiled by its bin/hipcc, in a process of its own.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define API __attribute__((visibility("default")))
enum { INVALID_INPUT = 3, COMPILATION = 6, INTERNAL = 11, MOST_OPTIONS = 64 };
static const char NOTHING[] = "";

typedef struct { char *source, *name, *log, *code; size_t code_size; int headers; char **texts, **names; } Rtc;

static char *read_file(const char *folder, const char *name, size_t *size) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    if (!file) return NULL;
    fseek(file, 0, SEEK_END);
    long length = ftell(file);
    rewind(file);
    char *data = malloc((size_t)length + 1);
    *size = fread(data, 1, (size_t)length, file);
    data[*size] = 0;
    fclose(file);
    return data;
}
static int write_file(const char *folder, const char *name, const char *text) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    for (char *slash = path + strlen(folder) + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = 0;
        mkdir(path, 0700);
        *slash = '/';
    }
    FILE *file = fopen(path, "wb");
    if (!file) return -1;
    fwrite(text, 1, strlen(text), file);
    return fclose(file);
}
static int compiler(char *path, size_t size) { // ../bin/hipcc beside this library's folder
    Dl_info here;
    char real[PATH_MAX];
    if (!dladdr((void *)&compiler, &here) || !realpath(here.dli_fname, real)) return -1;
    for (int i = 0; i < 2; i++) *strrchr(real, '/') = 0;
    return snprintf(path, size, "%s/bin/hipcc", real) < (int)size ? 0 : -1;
}
static int run(const char *folder, char *const *argv) {
    pid_t child = fork();
    if (child == 0) {
        int log = open("/dev/null", O_RDONLY);
        dup2(log, 0);
        if (chdir(folder)) _exit(126);
        log = open("log", O_WRONLY | O_CREAT | O_TRUNC, 0600);
        dup2(log, 1);
        dup2(log, 2);
        execv(argv[0], argv);
        _exit(127);
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) < 0) return -1;
    return status;
}
static void clear(const char *folder) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s", folder);
    char *const argv[] = {"/bin/rm", "-r", "-f", path, NULL};
    pid_t child = fork();
    if (child == 0) { execv(argv[0], argv); _exit(127); }
    if (child > 0) waitpid(child, NULL, 0);
}

API int hiprtcVersion(int *major, int *minor) { *major = 6; *minor = 0; return 0; }
API int hiprtcCreateProgram(Rtc **out, const char *source, const char *name, int headers, const char **texts, const char **names) {
    Rtc *p = calloc(1, sizeof *p);
    p->source = strdup(source);
    p->name = strdup(name && *name ? name : "CompileSource");
    p->headers = headers;
    p->texts = calloc((size_t)headers + 1, sizeof(char *));
    p->names = calloc((size_t)headers + 1, sizeof(char *));
    for (int i = 0; i < headers; i++) { p->texts[i] = strdup(texts[i]); p->names[i] = strdup(names[i]); }
    *out = p;
    return 0;
}
API int hiprtcCompileProgram(Rtc *p, int count, const char **options) {
    char tool[PATH_MAX], folder[PATH_MAX], *argv[MOST_OPTIONS + 10];
    const char *tmp = getenv("TMPDIR");
    size_t size = 0;
    if (count > MOST_OPTIONS) return INVALID_INPUT;
    snprintf(folder, sizeof folder, "%s/hiprtc-XXXXXX", tmp ? tmp : "/tmp");
    if (compiler(tool, sizeof tool) || !mkdtemp(folder)) return INTERNAL;
    int n = 0, result = write_file(folder, p->name, p->source);
    for (int i = 0; i < p->headers && !result; i++) { // hipwright's own stand for those that HIP has
        char path[PATH_MAX];
        snprintf(path, sizeof path, "headers/%s", p->names[i]);
        result = write_file(folder, path, p->texts[i]);
    }
    argv[n++] = tool;
    argv[n++] = "--genco";
    argv[n++] = "--built-in-headers";
    for (int i = 0; i < count; i++) argv[n++] = (char *)options[i];
    argv[n++] = "-idirafter";
    argv[n++] = "headers";
    argv[n++] = p->name;
    argv[n++] = "-o";
    argv[n++] = "code";
    argv[n] = NULL;
    int status = result ? -1 : run(folder, argv);
    free(p->log);
    p->log = read_file(folder, "log", &size);
    free(p->code);
    p->code = status == 0 ? read_file(folder, "code", &p->code_size) : NULL;
    clear(folder);
    if (p->code) return 0;
    return p->log && strstr(p->log, "error:") ? COMPILATION : INTERNAL;
}
static const char *log_of(const Rtc *p) { return p->log ? p->log : NOTHING; }
API int hiprtcGetProgramLogSize(Rtc *p, size_t *size) { *size = strlen(log_of(p)) + 1; return 0; }
API int hiprtcGetProgramLog(Rtc *p, char *log) { strcpy(log, log_of(p)); return 0; }
API int hiprtcGetCodeSize(Rtc *p, size_t *size) { *size = p->code_size; return p->code ? 0 : INTERNAL; }
API int hiprtcGetCode(Rtc *p, char *code) { if (!p->code) return INTERNAL; memcpy(code, p->code, p->code_size); return 0; }
API int hiprtcDestroyProgram(Rtc **program) {
    Rtc *p = *program;
    for (int i = 0; i < p->headers; i++) { free(p->texts[i]); free(p->names[i]); }
    free(p->texts); free(p->names); free(p->source); free(p->name); free(p->log); free(p->code); free(p);
    *program = NULL;
    return 0;
}
